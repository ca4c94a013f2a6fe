-- Read some records of an index, in its order. Records that a filter excludes are not returned: a filter
-- that few jobs match reads thousands, and the caller would decode them all.
-- KEYS: ready due parked held keep cancelled dead extra
-- ARGV: 1-3 clock, 4 the index, 5 limit, 6 "between" two members, 7 and 8 with their brackets; or in a set by
--       time "after" or "before" an instant and a member, 7 and 8; then the filter, each part '' for any:
--       9 task, 10 queue, 11 created at this instant or later, 12 created before this instant
-- Returns: {now_ms, whether there may be more, how many records were read, member, its instant or "", id,
--          record or nil, progress or why it is held or nil, member ...}; the last entry that was read is
--          always there, with nil for a record that the filter excludes
--@include records
--@include walk

local index, limit, way = ARGV[4], tonumber(ARGV[5]), ARGV[6]
local entries = {}  -- member, instant, member, instant ...
if way == 'after' then
  entries = timed_after(key[index], ARGV[7], ARGV[8], limit)
elseif way == 'before' then
  entries = timed_before(key[index], ARGV[7], ARGV[8], limit)
else
  for number, member in ipairs(call('ZRANGEBYLEX', key[index], ARGV[7], ARGV[8], 'LIMIT', 0, limit)) do
    entries[2 * number - 1], entries[2 * number] = member, ''
  end
end
local ids = {}
for at = 1, #entries, 2 do
  ids[#ids + 1] = ID_OF[index](entries[at])
end
fetch(ids)

local task, queue = ARGV[9], ARGV[10]
local since_ms, until_ms = tonumber(ARGV[11]), tonumber(ARGV[12])
local is_filtered = task ~= '' or queue ~= '' or since_ms or until_ms

-- Whether a job may be listed, by the head of its record.
local function is_chosen(bytes)
  local _, _, created_ms, _, queue_size, task_size = unpack_numbers(HEAD, bytes)
  if since_ms and created_ms < since_ms or until_ms and created_ms >= until_ms then
    return false
  end
  local task_at = QUEUE_AT + queue_size
  if task ~= '' and (task_size ~= #task or sub(bytes, task_at, task_at + task_size - 1) ~= task) then
    return false
  end
  if queue == '' then
    return true
  end
  local line = sub(bytes, QUEUE_AT, task_at - 1)
  return line == queue or sub(line, 1, #queue + 1) == queue .. '+'
end

local function progress_of(id)
  local may_have = unpack_numbers('>H', packed[id]) >= FLAG_MARKS
  return may_have and load(id)[HAS_PROGRESS] ~= 0 and call('HGET', key.extra, 'p:' .. id)
end

local reply = { now_ms, #ids == limit and 1 or 0, #ids }
for number, id in ipairs(ids) do
  local bytes = packed[id]  -- false for an entry without a record
  local chosen = bytes and (not is_filtered or is_chosen(bytes))
  if chosen or number == #ids then
    reply[#reply + 1] = entries[2 * number - 1]
    reply[#reply + 1] = entries[2 * number]
    reply[#reply + 1] = id
    reply[#reply + 1] = chosen and bytes
    reply[#reply + 1] = chosen and progress_of(id)
  end
end
return reply
