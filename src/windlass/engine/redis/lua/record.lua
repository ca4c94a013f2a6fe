-- Add the measures of a report to the current minute, unless an earlier call has added the report. The last
-- report of each reporter is remembered among the idempotency keys.
-- KEYS: meta keys key_expiry history
-- ARGV: 1-3 clock, 4 reporter, 5 number of the report, 6 how long a reporter is remembered, then for each
--       measure its name, as in `history`, and its counts
-- Returns: 1, or 0 for a repeat
--@adds
--@include history

local field, number = 'h:' .. ARGV[4], tonumber(ARGV[5])
local found = call('HGET', key.keys, field)
local known = found and cmsgpack.unpack(found)
if known and known[3] > now_ms and number <= tonumber(known[1]) then
  return 0
end
local until_ms = now_ms + tonumber(ARGV[6])
call('HSET', key.keys, field, cmsgpack.pack({ ARGV[5], '', until_ms }))
call('ZADD', key.key_expiry, text_of(until_ms), field)
for at = 7, #ARGV, 2 do
  add_counts('1', now_ms - now_ms % MINUTE_MS, ARGV[at], cmsgpack.unpack(ARGV[at + 1]))
end
return 1
