-- Walk the groups of dead jobs of a fingerprint, by one seek for each group.
-- KEYS: deaths
--@include clock

-- The group of a member of `deaths`.
local function group_at(member)
  return string.match(member, '^([^%z]*%z[^%z]*%z[^%z]*%z[^%z]*)%z')
end

-- The group of the first death from a bound on; nil at the end.
local function next_group(bound, last)
  local first = call('ZRANGEBYLEX', key.deaths, bound, last, 'LIMIT', 0, 1)[1]
  return first and group_at(first)
end

-- All groups of a fingerprint.
local function groups_of(fingerprint)
  local groups, last = {}, '(' .. fingerprint .. '\1'
  local group = next_group('[' .. fingerprint .. '\0', last)
  while group do
    groups[#groups + 1] = group
    group = next_group('[' .. group .. '\1', last)
  end
  return groups
end
