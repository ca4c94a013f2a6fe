-- The latest nonce of a session. A claim under this nonce or an earlier one leases nothing new.
-- KEYS: sessions
--@include clock
--@include order

-- Whether a session is known, whether it is dead, and its latest nonce.
local function find_session(session)
  local info = call('HGET', key.sessions, session)
  if not info then
    return false, false, ''
  end
  return true, string.sub(info, 1, 1) == '1', string.sub(info, 2)
end
