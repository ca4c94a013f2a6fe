-- Remove a schedule and keep its jobs.
-- KEYS: schedule schedule_names schedule_due
-- ARGV: 1-3 clock, 4 name
-- Returns: 1 if the schedule existed, otherwise 0
local name = ARGV[4]
redis.call('ZREM', key.schedule_due, name)
redis.call('HDEL', key.schedule, 'r:' .. name, 'n:' .. name, 'b:' .. name)
return redis.call('ZREM', key.schedule_names, name)
