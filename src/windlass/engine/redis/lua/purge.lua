-- Remove jobs of a queue that wait, one bounded bite: first who stands in line, then who waits for an
-- instant. Their idempotency keys are free then.
-- ARGV: 1-3 clock, 4 queue, 5 how many that wait for an instant were seen (-1 = the line comes first)
-- Returns: {how many were removed, what to begin with next (-2 = all was seen)}
--@include line
--@include removing

local queue, seen = ARGV[4], tonumber(ARGV[5])
local removed = 0

local function clear(ids)
  fetch(ids)
  for _, id in ipairs(ids) do
    local record = load(id)
    if base_of(record[QUEUE]) == queue then
      free_key(id)
      remove(id, record)
      total('cleared')
      removed = removed + 1
    end
  end
end

local function clear_line(suspects, line)
  local from, to = bounds(suspects, line)
  local ids = {}
  for _, member in ipairs(range(from, to, 0, BITE - removed)) do
    ids[#ids + 1] = id_in(member, #line)
  end
  clear(ids)
  flush()
end

local function clear_lines()
  for _, suspects in ipairs({ '0', '1' }) do
    clear_line(suspects, queue)
    local from, to = beside(suspects, queue)
    for _, line in ipairs(lines_between(suspects, from, to)) do
      clear_line(suspects, line)
    end
  end
end

if seen < 0 then
  clear_lines()
  seen = removed == BITE and -1 or 0
else
  local members = call('ZRANGEBYSCORE', key.due, '-inf', '(+inf', 'LIMIT', seen, BITE)
  local ids = {}
  for number, member in ipairs(members) do
    ids[number] = sub(member, 8)
  end
  clear(ids)
  seen = #members == BITE and seen + BITE - removed or -2
end
settle()
return { removed, seen }
