-- The latest nonce of a session. A claim under this nonce or an earlier one leases nothing new.
-- KEYS: sessions
--@include clock

-- Compare bytes: the operator < depends on the server's locale.
local function is_before(one, other)
  for at = 1, math.min(#one, #other) do
    local a, b = string.byte(one, at), string.byte(other, at)
    if a ~= b then
      return a < b
    end
  end
  return #one < #other
end

-- Whether a session is known, whether it is dead, and its latest nonce.
local function find_session(session)
  local info = call('HGET', key.sessions, session)
  if not info then
    return false, false, ''
  end
  return true, string.sub(info, 1, 1) == '1', string.sub(info, 2)
end
