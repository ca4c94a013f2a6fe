-- List live sessions, each with the number of its jobs, some job ids, its info and its command.
-- KEYS: lease held sessions
-- ARGV: 1-3 clock, 4 limit of ids per session
-- Returns: for each session its name, expires_in_ms, jobs, info and command ('' = nothing), {ids}
--@include clock

local function ids_of(session)
  local members = call('ZRANGEBYLEX', key.held, '[' .. session .. '\0', '(' .. session .. '\1', 'LIMIT', 0, ARGV[4])
  for number, member in ipairs(members) do
    members[number] = string.match(member, '[^%z]*$')
  end
  return members
end

local found = call('ZRANGEBYSCORE', key.lease, 0, '(+inf', 'WITHSCORES')
local reply = {}
for at = 1, #found, 2 do
  local session = found[at]
  reply[#reply + 1] = session
  reply[#reply + 1] = tonumber(found[at + 1]) - now_ms
  reply[#reply + 1] = call('ZLEXCOUNT', key.held, '[' .. session .. '\0', '(' .. session .. '\1')
  local stored = call('HMGET', key.sessions, session .. '\0', session .. '\0command')
  reply[#reply + 1] = stored[1] or ''
  reply[#reply + 1] = stored[2] or ''
  reply[#reply + 1] = ids_of(session)
end
return reply
