-- Compute the index entries that each record requires: the common part of `check` and `repair`.
-- KEYS: body ids watch_until
--@include sessions
--@include unique
--@include line

local SENTINELS = {
  hash = { 'meta', 'job', 'body', 'extra', 'sessions', 'keys', 'count', 'total', 'waiters',
    'watch', 'schedule' },
  set = {
    'ids', 'ready', 'lines', 'due', 'parked', 'held', 'asked', 'keep', 'dead', 'lease', 'forget',
    'key_expiry', 'idle', 'unique', 'watch_until', 'schedule_names', 'schedule_due',
  },
}
-- Scores of sentinels that are not 0.
local SCORES = {
  due = '+inf', keep = '+inf', lease = '+inf', forget = '+inf', key_expiry = '+inf', watch_until = '+inf',
  schedule_due = '+inf',
}

local function unique_member(id, record)
  local _, _, name = read_unique(record)
  return name and unique_prefix(record[TASK], name) .. id
end

local function last_part(member)
  return string.match(member, '([^%z]*)$')
end

local function whole(member)
  return member
end

-- The id at the end of a member of an index.
local ID_OF = {
  ids = whole, keep = whole, dead = whole, held = last_part, asked = last_part, unique = last_part,
  due = function(member) return string.sub(member, 8) end,
  ready = function(member) return string.sub(member, (string.find(member, '\0', 2, true) or #member) + 12) end,
  parked = function(member) return string.sub(member, (string.find(member, '\0', 1, true) or #member) + 8) end,
}

local function waits(record)
  return record[STATE] == 'scheduled' or record[STATE] == 'retrying' or record[HOLD] ~= 'none'
end

-- The member of a job in an index; nil when it does not belong there.
local MEMBER_OF = {
  ids = function(id) return id end,
  ready = function(id, record)
    return record[STATE] == 'ready' and record[HOLD] == 'none' and member_of('ready', id, record) or nil
  end,
  due = function(id, record) return waits(record) and member_of('due', id, record) or nil end,
  parked = function(id, record) return record[HOLD] ~= 'none' and member_of('parked', id, record) or nil end,
  held = function(id, record) return record[STATE] == 'running' and member_of('held', id, record) or nil end,
  asked = function(id, record)
    return record[STATE] == 'running' and record[CANCEL_REQUESTED] == 1 and record[SESSION] .. '\0' .. id or nil
  end,
  keep = function(id, record) return FINAL[record[STATE]] and id or nil end,
  dead = function(id, record) return record[STATE] == 'dead' and id or nil end,
}

-- The line of an entry of `lines`, with its mark of suspects; nil when it is no entry.
local function mark_of_entry(entry)
  local suspects, required, queue = string.match(entry, '^([01])([^%z]*)%z[^%z]*%z............(.*)$')
  return suspects and suspects .. queue .. required
end
