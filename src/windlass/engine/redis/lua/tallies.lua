-- The groups of dead jobs, the largest first, each with its first and its last death.
-- KEYS: dead_groups
-- ARGV: 1-3 clock, 4 limit, 5 "all" or "of", then fingerprints
-- Returns: {1 if there are more groups, otherwise 0; for each group its name, number of jobs, and the instant and id
--          of its first and its last death}
--@include group_walk

local limit, found = tonumber(ARGV[4]), {}
if ARGV[5] == 'all' then
  found = call('ZRANGE', key.dead_groups, 0, limit, 'REV', 'WITHSCORES')
else
  for at = 6, #ARGV do
    for _, group in ipairs(groups_of(ARGV[at])) do
      found[#found + 1] = group
      found[#found + 1] = call('ZSCORE', key.dead_groups, group) or '0'
    end
  end
end
local reply, number = { 0 }, 0
for at = 1, #found, 2 do
  local group = found[at]
  local first = group ~= '' and call('ZRANGEBYLEX', key.deaths, '[' .. group .. '\0', '(' .. group .. '\1', 'LIMIT', 0, 1)[1]
  if first then
    number = number + 1
    if number > limit then
      reply[1] = 1
      break
    end
    local last = call('ZRANGE', key.deaths, '(' .. group .. '\1', '[' .. group .. '\0', 'BYLEX', 'REV', 'LIMIT', 0, 1)[1]
    for _, word in ipairs({ group, found[at + 1], sub(first, #group + 2), sub(last, #group + 2) }) do
      reply[#reply + 1] = word
    end
  end
end
return reply
