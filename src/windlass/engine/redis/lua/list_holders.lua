-- Find succeeded and cancelled jobs that hold a unique key for a period.
-- ARGV: 1-3 clock, 4 the member of `unique` after which to begin, 5 how many to read
-- Returns: {the member after which to continue ("" = at the end), ids ...}
--@include unique

local members = call('ZRANGEBYLEX', key.unique, '(' .. ARGV[4], '+', 'LIMIT', 0, ARGV[5])
local ids = {}
for number, member in ipairs(members) do
  ids[number] = string.match(member, '([^%z]*)$')
end
fetch(ids)

-- Whether a job has ended, and still holds the key that leads to it by a member.
local function is_holder(id, member)
  local record = load(id)
  if not record or record[UNIQUE] == '' or record[STATE] ~= 'succeeded' and record[STATE] ~= 'cancelled' then
    return false
  end
  local _, period_until_ms, name = read_unique(record)
  return period_until_ms > now_ms and unique_prefix(record[TASK], name) .. id == member
end

local reply = { #members == tonumber(ARGV[5]) and members[#members] or '' }
for number, id in ipairs(ids) do
  if is_holder(id, members[number]) then
    reply[#reply + 1] = id
  end
end
return reply
