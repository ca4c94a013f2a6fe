-- Read the info of sessions.
-- KEYS: meta sessions
-- ARGV: 1-3 clock, then sessions
-- Returns: for each session its info, or nothing
local reply = {}
for number = 4, #ARGV do
  reply[#reply + 1] = redis.call('HGET', key.sessions, ARGV[number] .. '\0')
end
return reply
