-- Counters, read and never counted, and the next in line of every queue.
-- KEYS: count total ready meta
-- ARGV: 1-3 clock
-- Returns: {counts, totals, {queue, rank, how long the next in line has been ready, ...}}
--@include records

local counts = call('HGETALL', key.count)
local heads = {}
for at = 1, #counts, 2 do
  local queue, state = string.match(counts[at], '^(.*)%z(.*)$')
  if state == 'ready' then
    local from, to = '[0' .. queue .. '\0', '(0' .. queue .. '\1'
    local member = call('ZRANGEBYLEX', key.ready, from, to, 'LIMIT', 0, 1)[1]
    if member then
      local record = load(string.sub(member, #queue + 14))
      heads[#heads + 1] = queue
      heads[#heads + 1] = record[AGE] - record[PRIORITY]
      heads[#heads + 1] = math.max(0, now_ms - record[READY_MS])
    end
  end
end
local totals = call('HGETALL', key.total)
local enqueued = call('HGET', key.meta, 'enqueued')
if enqueued then
  totals[#totals + 1] = 'enqueued'
  totals[#totals + 1] = enqueued
end
return { counts, totals, heads }
