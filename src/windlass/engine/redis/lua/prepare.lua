-- Prepare a claim over several partitions: promote due jobs, take back lost jobs, and count the jobs of
-- each queue of a plan.
-- ARGV: 1-3 clock, 4 session, 5 nonce, 6 limit of each count, 7 a plan
-- Returns: {no verdicts; 1 if the session is gone, 2 if the nonce was used before, otherwise 0; next_in_ms
--          or -1; suspects wait; nothing; for each queue its count}
--@include claim

local suspects, queues = read_plan(7)
if tasks then
--@insert task_filter
  filter_tasks(queues)
end
local in_ms = next_in_ms()
if in_ms == 0 then
  notice()
  promote()
  reap()
  in_ms = next_in_ms()
end
local _, is_gone, latest = find_session(ARGV[4])
local code = is_gone and 1 or is_before(latest, ARGV[5]) and 0 or 2
local reply = { '', code, in_ms, is_any_ready('1', queues) and 1 or 0, '' }
for _, queue in ipairs(queues) do
  local number = 0
  if tasks then
    number = #find_wanted(front, suspects, queue, 0, tonumber(ARGV[6]))
  else
    for _, line in ipairs(lines_of(suspects, queue)) do
      number = number + call('ZLEXCOUNT', key.ready, bounds(suspects, line))
    end
  end
  reply[#reply + 1] = math.min(number, tonumber(ARGV[6]))
end
settle()
return reply
