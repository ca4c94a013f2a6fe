-- Find the jobs that hold unique keys.
-- ARGV: 1-3 clock, then for each key its task and the key
-- Returns: for each key the id of the job that holds it, or ""
--@include unique

local reply = {}
for at = 4, #ARGV, 2 do
  reply[#reply + 1] = find_holder(ARGV[at], ARGV[at + 1]) or ''
end
return reply
