-- One bite of what live sessions say of themselves, of those whose name begins with a text.
-- KEYS: lease sessions
-- ARGV: 1-3 clock, 4 cursor ("0" at the beginning), 5 the text
-- Returns: {cursor ("0" at the end), session, info, session, info ...}
--@include constants
--@include clock

local prefix = ARGV[5]
local found = call('HSCAN', key.sessions, ARGV[4], 'COUNT', CHUNK)
local reply, fields = { found[1] }, found[2]
for at = 1, #fields, 2 do
  local field = fields[at]
  if #field > 1 and sub(field, -1) == '\0' and sub(field, 1, #prefix) == prefix then
    local session = sub(field, 1, -2)
    if call('ZSCORE', key.lease, session) then
      reply[#reply + 1] = session
      reply[#reply + 1] = fields[at + 1]
    end
  end
end
return reply
