-- Live sessions, and how many jobs each holds.
-- KEYS: lease held
-- ARGV: 1-3 clock
-- Returns: for each session its name, expires_in_ms, jobs
--@include clock

local found = call('ZRANGEBYSCORE', key.lease, 0, '(+inf', 'WITHSCORES')
local reply = {}
for at = 1, #found, 2 do
  local session = found[at]
  reply[#reply + 1] = session
  reply[#reply + 1] = tonumber(found[at + 1]) - now_ms
  reply[#reply + 1] = call('ZLEXCOUNT', key.held, '[' .. session .. '\0', '(' .. session .. '\1')
end
return reply
