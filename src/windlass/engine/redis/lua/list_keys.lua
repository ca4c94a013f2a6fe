-- Read idempotency keys that are remembered.
-- KEYS: meta keys
-- ARGV: 1-3 clock, 4 cursor ("0" = begin), 5 about how many to read
-- Returns: {next cursor ("0" = at the end), field, entry, field, entry ...}
--@include clock
local found = call('HSCAN', key.keys, ARGV[4], 'COUNT', ARGV[5])
local reply = { found[1] }
for at = 1, #found[2], 2 do
  -- Other fields have a letter at the beginning, and the sentinel has nothing.
  if string.find(found[2][at], '^%d') and cmsgpack.unpack(found[2][at + 1])[3] > now_ms then
    reply[#reply + 1] = found[2][at]
    reply[#reply + 1] = found[2][at + 1]
  end
end
return reply
