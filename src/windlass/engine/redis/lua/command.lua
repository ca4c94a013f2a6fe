-- Set the command that heartbeats of live sessions return.
-- KEYS: meta
-- ARGV: 1-3 clock, 4 the command ("run" = as without a command), then sessions
-- Returns: for each session 1 if it lives here, 0 if it is not known here, -1 if it is dead
--@include nonces

local reply = {}
for number = 5, #ARGV do
  local session = ARGV[number]
  local is_known, is_gone = find_session(session)
  if is_known and not is_gone then
    if ARGV[4] == 'run' then
      call('HDEL', key.sessions, session .. '\0command')
    else
      call('HSET', key.sessions, session .. '\0command', ARGV[4])
    end
  end
  reply[#reply + 1] = is_gone and -1 or is_known and 1 or 0
end
return reply
