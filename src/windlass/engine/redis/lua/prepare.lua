-- Prepare a claim over several partitions: promote due jobs, take back lost jobs, and count the jobs of
-- each queue of a plan.
-- ARGV: 1-3 clock, 4 session, 5 limit of each count, 6 a plan
-- Returns: {no verdicts, gone, next_in_ms or -1, suspects wait, nothing, for each queue its count}
--@include claim

local suspects, queues = read_plan(6)
local in_ms = next_in_ms()
if in_ms == 0 then
  notice()
  promote()
  reap()
  in_ms = next_in_ms()
end
local _, is_gone = find_session(ARGV[4])
local reply = { '', is_gone and 1 or 0, in_ms, is_any_ready('1', queues) and 1 or 0, '' }
for _, queue in ipairs(queues) do
  local number = 0
  for _, line in ipairs(lines_of(suspects, queue)) do
    number = number + call('ZLEXCOUNT', key.ready, bounds(suspects, line))
  end
  reply[#reply + 1] = math.min(number, tonumber(ARGV[5]))
end
settle()
return reply
