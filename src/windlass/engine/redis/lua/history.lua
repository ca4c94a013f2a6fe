-- Read rows of the history, the earliest first.
-- KEYS: meta history
-- ARGV: 1-3 clock, 4 the instant of the first row, or "-" and how long ago it is, 5 limit of the rows of each
--       kind, then kinds
-- Returns: for each kind its members
--@include history

local begin_ms = sub(ARGV[4], 1, 1) == '-' and now_ms + tonumber(ARGV[4]) or tonumber(ARGV[4])
local reply = {}
for at = 6, #ARGV do
  local kind = ARGV[at]
  local from, to = '[' .. front_of(kind, begin_ms), '(' .. tostring(kind + 1)
  reply[#reply + 1] = call('ZRANGEBYLEX', key.history, from, to, 'LIMIT', 0, ARGV[5])
end
return reply
