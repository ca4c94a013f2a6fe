-- Compute the index entries that each record requires: the common part of `check` and `repair`.
-- KEYS: body watch_until document audit history deaths dead_groups
--@include sessions
--@include unique
--@include line
--@include walk
--@include group_walk
--@include steps
define_groups()

local SENTINELS = {
  hash = { 'meta', 'job', 'body', 'extra', 'sessions', 'keys', 'count', 'total', 'waiters',
    'watch', 'schedule' },
  set = {
    'ready', 'lines', 'due', 'parked', 'held', 'asked', 'keep', 'cancelled', 'dead', 'lease', 'forget',
    'key_expiry', 'idle', 'unique', 'watch_until', 'schedule_names', 'schedule_due', 'document', 'audit',
    'history', 'deaths', 'dead_groups', 'steps',
  },
}
-- Scores of sentinels that are not 0.
local SCORES = {
  due = '+inf', keep = '+inf', cancelled = '+inf', dead = '+inf', lease = '+inf', forget = '+inf',
  key_expiry = '+inf', watch_until = '+inf', schedule_due = '+inf',
}

-- The names of the pairs of queue and task that have a counter, their number without that of all others, and
-- whether `meta` stores these names and this number.
local function read_pairs(fields)
  local counted, number, stored = {}, 0, {}
  for at = 1, #fields, 2 do
    if sub(fields[at], 1, 2) == 'e:' then
      counted[#counted + 1] = sub(fields[at], 3)
      number = number + (sub(fields[at], 3) ~= '_other\0_other' and 1 or 0)
    end
    stored[fields[at]] = fields[at + 1]
  end
  table.sort(counted)
  local names = stored.pair_names and cmsgpack.unpack(stored.pair_names) or {}
  table.sort(names)
  local is_right = table.concat(counted, '\1') == table.concat(names, '\1') and number == tonumber(stored.pairs or 0)
  return counted, number, is_right
end

local function unique_member(id, record)
  local _, _, name = read_unique(record)
  return name and unique_prefix(record[TASK], name) .. id
end

ID_OF.asked, ID_OF.unique = last_part, last_part
ID_OF.deaths = function(member) return sub(member, #(group_at(member) or '') + 8) end

-- The number of dead jobs that a group lists.
local function size_of_group(group)
  return call('ZLEXCOUNT', key.deaths, '[' .. group .. '\0', '(' .. group .. '\1')
end

-- Some groups of `deaths` after one.
local function groups_behind(group, most)
  local found, bound = {}, group == '' and '(' or '[' .. group .. '\1'
  local following = next_group(bound, '+')
  while following and #found < most do
    found[#found + 1] = following
    following = next_group('[' .. following .. '\1', '+')
  end
  return found
end

-- Some jobs with steps, after one. Values may be large, so one step of each job is read.
local function owners_behind(id, most)
  local found, bound = {}, id == '' and '(' or '(' .. id .. '\1'
  while #found < most do
    local member = call('ZRANGEBYLEX', key.steps, bound, '+', 'LIMIT', 0, 1)[1]
    if not member then
      break
    end
    local owner = string.match(member, '^[^%z]*')
    found[#found + 1], bound = owner, '(' .. owner .. '\1'
  end
  return found
end

local function waits(record)
  return record[STATE] == 'scheduled' or record[STATE] == 'retrying' or record[HOLD] ~= 'none'
end

-- The member of a job in an index; nil when it does not belong there.
local function right_member(index, id, record)
  if index == 'deaths' then
    return record[STATE] == 'dead' and death_of(id, record) or nil
  end
  local belongs = index_of(record) == index
  if index == 'asked' then
    belongs = record[STATE] == 'running' and record[CANCEL_REQUESTED] == 1
  elseif index == 'due' then
    belongs = waits(record)
  elseif index == 'parked' then
    belongs = record[HOLD] ~= 'none'
  end
  return belongs and member_of(index, id, record) or nil
end

-- The line of an entry of `lines`, with its mark of suspects; nil when it is no entry.
local function mark_of_entry(entry)
  local suspects, required, queue = string.match(entry, '^([01])([^%z]*)%z[^%z]*%z............(.*)$')
  return suspects and suspects .. queue .. required
end
