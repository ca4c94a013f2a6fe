-- Say whether a claim under a plan would find something to do; if not, put a waiter on the list.
-- Both in one step, so that no wake-up falls in between.
-- ARGV: 1-3 clock, 4 channel of the waiter, 5 how long it waits in ms, 6 a plan
-- Returns: 1 or 0
--@include line
local MOST_RINGS = 100  -- more are not kept for those who have looked and do not listen yet

local suspects, queues = read_plan(6)
if has_work(suspects, queues) then
  return 1
end
local here_ms = server_ms()
call('ZREMRANGEBYSCORE', key.wait, '(-inf', here_ms)
redis.pcall('XTRIM', key.bell, 'MAXLEN', MOST_RINGS)
call('ZADD', key.wait, here_ms + tonumber(ARGV[5]), ARGV[4])
return 0
