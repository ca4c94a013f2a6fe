-- Compute the index entries that each record requires: the common part of `check` and `repair`.
-- KEYS: body watch_until
--@include sessions
--@include unique
--@include line
--@include walk

local SENTINELS = {
  hash = { 'meta', 'job', 'body', 'extra', 'sessions', 'keys', 'count', 'total', 'waiters',
    'watch', 'schedule' },
  set = {
    'ready', 'lines', 'due', 'parked', 'held', 'asked', 'keep', 'cancelled', 'dead', 'lease', 'forget',
    'key_expiry', 'idle', 'unique', 'watch_until', 'schedule_names', 'schedule_due',
  },
}
-- Scores of sentinels that are not 0.
local SCORES = {
  due = '+inf', keep = '+inf', cancelled = '+inf', dead = '+inf', lease = '+inf', forget = '+inf',
  key_expiry = '+inf', watch_until = '+inf', schedule_due = '+inf',
}

local function unique_member(id, record)
  local _, _, name = read_unique(record)
  return name and unique_prefix(record[TASK], name) .. id
end

ID_OF.asked, ID_OF.unique = last_part, last_part

local function waits(record)
  return record[STATE] == 'scheduled' or record[STATE] == 'retrying' or record[HOLD] ~= 'none'
end

-- The member of a job in an index; nil when it does not belong there.
local function right_member(index, id, record)
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
