-- Read some records of an index, in its order.
-- KEYS: ready due parked held keep cancelled dead extra
-- ARGV: 1-3 clock, 4 the index, 5 limit, 6 "between" two members, 7 and 8 with their brackets; or in a set by
--       time "after" or "before" an instant and a member, 7 and 8
-- Returns: {now_ms, whether there may be more, member, its instant or "", id, record or nil, progress or why
--          it is held or nil, member ...}
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
local reply = { now_ms, #ids == limit and 1 or 0 }
for number, id in ipairs(ids) do
  local record = load(id)  -- false for an entry without a record
  local has_progress = record and record[HAS_PROGRESS] ~= 0
  reply[#reply + 1] = entries[2 * number - 1]
  reply[#reply + 1] = entries[2 * number]
  reply[#reply + 1] = id
  reply[#reply + 1] = packed[id]
  reply[#reply + 1] = has_progress and call('HGET', key.extra, 'p:' .. id)
end
return reply
