-- Read the steps of a job for its holder.
-- KEYS: meta
-- ARGV: 1-3 clock, 4 id, 5 token
-- Returns: name and value of each step, or nothing if the token is not current
--@include steps

local record = load(ARGV[4])
if not record or record[TOKEN] == '' or record[TOKEN] ~= ARGV[5] then
  return false
end
local reply = {}
for _, member in ipairs(steps_of(ARGV[4])) do
  reply[#reply + 1], reply[#reply + 2] = read_step(member)
end
return reply
