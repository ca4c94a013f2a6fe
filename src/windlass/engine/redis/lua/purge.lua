-- Remove one bounded batch of waiting jobs of a queue and free their idempotency keys: first ready jobs,
-- then jobs that wait for an instant.
-- ARGV: 1-3 clock, 4 queue, 5 how many jobs that wait for an instant were seen (-1 = ready jobs first)
-- Returns: {number of removed jobs, value of 5 for the next call (-2 = at the end)}
--@include line
--@include removal

local queue, seen = ARGV[4], tonumber(ARGV[5])
local removed, dropped = 0, 0

-- Remove the jobs that members of an index point to, if they are of this queue. Members that point to
-- no job are dropped.
local function clear(index, ids, members)
  fetch(ids)
  for number, id in ipairs(ids) do
    local record = load(id)
    local waits = record and (record[DUE_MS] >= 0 or record[STATE] == 'ready')
    if not waits or members[number] ~= member_of(index, id, record) then
      drop(key[index], members[number])
      dropped = dropped + 1
    elseif base_of(record[QUEUE]) == queue then
      free_key(id)
      remove(id, record)
      total('cleared')
      removed = removed + 1
    end
  end
end

local function clear_line(suspects, line)
  local from, to = bounds(suspects, line)
  local ids, members = {}, range(from, to, 0, BITE - removed - dropped)
  touch(suspects .. line)
  for _, member in ipairs(members) do
    ids[#ids + 1] = id_in(member, #line)
  end
  clear('ready', ids, members)
  flush()
end

local function clear_lines()
  for _, suspects in ipairs({ '0', '1' }) do
    clear_line(suspects, queue)
    local from, to = label_bounds(suspects, queue)
    for _, line in ipairs(lines_between(suspects, from, to)) do
      clear_line(suspects, line)
    end
  end
end

if seen < 0 then
  clear_lines()
  seen = removed + dropped == BITE and -1 or 0
else
  local members = call('ZRANGEBYSCORE', key.due, '-inf', '(+inf', 'LIMIT', seen, BITE)
  local ids = {}
  for number, member in ipairs(members) do
    ids[number] = sub(member, 8)
  end
  clear('due', ids, members)
  seen = #members == BITE and seen + BITE - removed - dropped or -2
end
settle()
return { removed, seen }
