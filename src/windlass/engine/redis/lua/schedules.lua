-- Read schedules, each with its watched jobs that have not ended.
-- KEYS: schedule schedule_names schedule_due total
-- ARGV: 1-3 clock, 4 "due", 5 limit, then names to skip
--               or 4 "after", 5 limit, 6 the name after which to begin
--               or 4 "named", 5 anything, then names
-- Returns: {now_ms, milliseconds until the next schedule that is not due yet (-1 = none), whether
--          there are more, for each schedule nothing or {name, record, note, body, unfinished ids ...}}
--@include records
local ENDED = { succeeded = true, dead = true, cancelled = true }
local limit = tonumber(ARGV[5])

local function due_names()
  local skipped, names = {}, {}
  for number = 6, #ARGV do
    skipped[ARGV[number]] = true
  end
  local most = limit + 1 + #ARGV - 5
  for _, name in ipairs(call('ZRANGEBYSCORE', key.schedule_due, '-inf', now_ms, 'LIMIT', 0, most)) do
    if not skipped[name] and #names <= limit then
      names[#names + 1] = name
    end
  end
  return names
end

local function unfinished(ids)
  local found = {}
  fetch(ids)
  for _, id in ipairs(ids) do
    local record = load(id)
    if record and not ENDED[record[STATE]] then
      found[#found + 1] = id
    end
  end
  return found
end

local function next_in_ms()
  local from = '(' .. string.format('%.0f', now_ms)
  local found = call('ZRANGEBYSCORE', key.schedule_due, from, '(+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return found[2] and tonumber(found[2]) - now_ms or -1
end

local function find_names()
  if ARGV[4] == 'due' then
    return due_names()
  elseif ARGV[4] == 'after' then
    return call('ZRANGEBYLEX', key.schedule_names, '(' .. ARGV[6], '+', 'LIMIT', 0, limit)
  end
  return { unpack(ARGV, 6) }
end

-- The stored parts of schedules: record, note and body of each, in turn.
local function read_parts(names)
  local fields = {}
  for _, name in ipairs(names) do
    fields[#fields + 1] = 'r:' .. name
    fields[#fields + 1] = 'n:' .. name
    fields[#fields + 1] = 'b:' .. name
  end
  return read_fields(key.schedule, fields)
end

local function is_whole(parts, number)
  return parts[3 * number - 2] and parts[3 * number - 1] and parts[3 * number]
end

-- Listed names without a complete schedule are dropped and counted.
local function drop_remains(names, parts)
  local dropped = 0
  for number, name in ipairs(names) do
    if not is_whole(parts, number) then
      call('ZREM', key.schedule_due, name)
      call('ZREM', key.schedule_names, name)
      dropped = dropped + 1
    end
  end
  if dropped > 0 then
    call('HINCRBY', key.total, 'orphans', dropped)
  end
  return dropped
end

local names = find_names()
local values = read_parts(names)
while ARGV[4] ~= 'named' and drop_remains(names, values) > 0 do
  names = find_names()
  values = read_parts(names)
end
local has_more = #names > limit and ARGV[4] == 'due'
if has_more then
  names[#names] = nil
end

local reply = { now_ms, next_in_ms(), has_more and 1 or 0 }
for number, name in ipairs(names) do
  local at = 3 * number - 2
  if is_whole(values, number) then
    local record = cmsgpack.unpack(values[at])
    reply[number + 3] = { name, values[at], values[at + 1], values[at + 2], unpack(unfinished(record[3])) }
  else
    reply[number + 3] = false
  end
end
return reply
