-- Read one batch of the info of live sessions, limited to names with a prefix. Batches follow the end of
-- leases: a session with a heartbeat in between moves ahead and is read again, and a silent session is
-- not skipped.
-- KEYS: lease sessions
-- ARGV: 1-3 clock, 4 the prefix, 5 the end of the lease and 6 the name of the last session seen
--       ("0" and "" at the beginning)
-- Returns: {values of 5 and 6 for the next call ("" and "" = at the end), session, info, session, info ...}
--@include constants
--@include clock

local prefix, last_ms, last = ARGV[4], ARGV[5], ARGV[6]
local page
if last ~= '' and tonumber(call('ZSCORE', key.lease, last) or -1) == tonumber(last_ms) then
  local start = call('ZRANK', key.lease, last) + 1
  page = call('ZRANGE', key.lease, start, start + CHUNK - 1, 'WITHSCORES')
else
  page = call('ZRANGEBYSCORE', key.lease, last_ms, '(+inf', 'WITHSCORES', 'LIMIT', 0, CHUNK)
end
local reply = { '', '' }
if #page == 2 * CHUNK and page[#page - 1] ~= '' then
  reply = { page[#page], page[#page - 1] }
end
for at = 1, #page, 2 do
  local session = page[at]
  local info = session ~= '' and sub(session, 1, #prefix) == prefix
    and call('HGET', key.sessions, session .. '\0')
  if info then
    reply[#reply + 1] = session
    reply[#reply + 1] = info
  end
end
return reply
