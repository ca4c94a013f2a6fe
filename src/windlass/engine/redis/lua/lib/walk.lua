-- Walk an index in its own order, from any place: the place need not be taken any more.
--@include clock
--@include order
local function last_part(member)
  return string.match(member, '([^%z]*)$')
end

local function whole(member)
  return member
end

-- The id at the end of a member of an index.
local ID_OF = {
  held = last_part, keep = whole, cancelled = whole, dead = whole,
  ready = function(member) return sub(member, (string.find(member, '\0', 2, true) or #member) + 12) end,
  parked = function(member) return sub(member, (string.find(member, '\0', 1, true) or #member) + 8) end,
  due = function(member) return sub(member, 8) end,
}

-- The number of members of a set by time before an instant and member, and whether that member is there. Many
-- members may have the same instant: if the member has left, the place among them is searched by halves.
local function rank_of(name, score, member)
  local stored = call('ZSCORE', name, member)
  if stored and tonumber(stored) == tonumber(score) then
    return call('ZRANK', name, member), true
  end
  local function first_rank(bound)
    local first = call('ZRANGEBYSCORE', name, bound, '+inf', 'LIMIT', 0, 1)[1]
    return first and call('ZRANK', name, first) or call('ZCARD', name)
  end
  local low, high = first_rank(score), first_rank('(' .. score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_before(call('ZRANGE', name, middle, middle)[1], member) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low, false
end

-- Members of a set by time after an instant and member, each followed by its instant.
local function timed_after(name, score, member, limit)
  local rank, is_there = rank_of(name, score, member)
  local from = is_there and rank + 1 or rank
  return call('ZRANGE', name, from, from + limit - 1, 'WITHSCORES')
end

-- The same before an instant and member, the last ones first.
local function timed_before(name, score, member, limit)
  local rank = rank_of(name, score, member)
  local found = rank > 0 and call('ZRANGE', name, math.max(0, rank - limit), rank - 1, 'WITHSCORES') or {}
  local reversed = {}
  for at = #found - 1, 1, -2 do
    reversed[#reversed + 1] = found[at]
    reversed[#reversed + 1] = found[at + 1]
  end
  return reversed
end
