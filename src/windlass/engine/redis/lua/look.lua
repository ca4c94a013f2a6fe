-- Say whether a claim under a plan would find something to do; if not, put a waiter on the list.
-- Both in one step, so that no wake-up falls in between.
-- ARGV: 1-3 clock, 4 a waiter, 5 how long it waits in ms, 6 a plan
-- Returns: 1 or 0
--@include line

local suspects, queues = read_plan(6)
if has_work(suspects, queues) then
  return 1
end
call('ZREMRANGEBYSCORE', key.wait, '(-inf', server_ms)
call('ZADD', key.wait, server_ms + tonumber(ARGV[5]), ARGV[4])
local _, _, session = read_waiter(ARGV[4])
if session and not select(2, find_session(session)) then
  -- What is handed over to it meanwhile is leased from now on.
  call('ZADD', key.lease, 'XX', now_ms + lease_ms, session)
end
return 0
