-- Store new jobs, each at most once.
-- ARGV: 1-3 clock, then for each job its head, as in putting, and its body
-- Returns: for each job its id, or that of the job which has its key, then "created", "existing" or
--          "conflict"
--@include putting

local heads, ids = {}, {}
for at = 4, #ARGV, 2 do
  heads[#heads + 1] = cmsgpack.unpack(ARGV[at])
  ids[#ids + 1] = heads[#heads][1]
end
fetch(ids)
local reply = {}
for number, head in ipairs(heads) do
  local id, code = put(head, ARGV[3 + 2 * number])
  reply[#reply + 1] = id
  reply[#reply + 1] = code
end
settle()
return reply
