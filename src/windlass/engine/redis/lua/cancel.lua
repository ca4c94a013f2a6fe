-- Cancel waiting jobs, and request the cancellation of running ones.
-- ARGV: 1-3 clock, then ids
-- Returns: for each id "cancelled", "requested", "final" or "unknown"
--@include cancellation

local ids = { unpack(ARGV, 4) }
fetch(ids)
local reply = {}
for number, id in ipairs(ids) do
  reply[number] = cancel(id)
end
settle()
return reply
