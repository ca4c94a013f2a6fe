-- Read some records below an id, newest first.
-- KEYS: ids dead extra
-- ARGV: 1-3 clock, 4 "ids" or "dead", 5 below this id ("" = from the newest), 6 limit, 7 down to this id
--       ("" = to the oldest)
-- Returns: {now_ms, id, record, progress or why it is held, id, record, progress ...}
--@include records

local below = ARGV[5] == '' and '+' or '(' .. ARGV[5]
local last = ARGV[7] == '' and '(' or '[' .. ARGV[7]
local ids = call('ZREVRANGEBYLEX', key[ARGV[4]], below, last, 'LIMIT', 0, tonumber(ARGV[6]))
fetch(ids)
local reply = { now_ms }
for _, id in ipairs(ids) do
  local record = load(id)  -- false for an id without a record
  local has_progress = record and record[HAS_PROGRESS] ~= 0
  reply[#reply + 1] = id
  reply[#reply + 1] = packed[id]
  reply[#reply + 1] = has_progress and call('HGET', key.extra, 'p:' .. id)
end
return reply
