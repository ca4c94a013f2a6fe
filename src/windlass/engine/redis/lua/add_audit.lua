-- Add entries to the audit trail, and remove the oldest above a limit. The trail is bounded, so that a server
-- whose memory is full accepts entries about the removals that make room.
-- KEYS: meta audit
-- ARGV: 1-3 clock, 4 limit of entries, then for each entry: id, body
-- Returns: number of added entries
--@include constants
--@include clock

local added = 0
for at = 5, #ARGV, 2 do
  local id = ARGV[at]
  local is_known = call('ZRANGEBYLEX', key.audit, '[' .. id .. '\0', '(' .. id .. '\1', 'LIMIT', 0, 1)[1]
  if not is_known then
    added = added + call('ZADD', key.audit, '0', id .. '\0' .. text_of(now_ms) .. '\0' .. ARGV[at + 1])
  end
end
local over = call('ZCARD', key.audit) - 1 - tonumber(ARGV[4])
if over > 0 then
  local oldest = call('ZRANGE', key.audit, 1, math.min(over, CHUNK))  -- the sentinel is before them
  call('ZREM', key.audit, unpack(oldest))
end
return added
