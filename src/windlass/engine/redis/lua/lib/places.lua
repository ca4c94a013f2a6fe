-- The place of a job in the indexes. The record alone decides the index and the member; for a job that has
-- ended, only the index stores the instant at which the purge visits it.
--@include layout
local FINAL = { succeeded = 'keep', dead = 'dead', cancelled = 'cancelled' }  -- state -> index

-- The index that lists a job in its state: every job is in one of them.
local function index_of(record)
  local state = record[STATE]
  if state == 'running' then
    return 'held'
  elseif FINAL[state] then
    return FINAL[state]
  elseif record[HOLD] ~= 'none' then
    return 'parked'
  end
  return state == 'ready' and 'ready' or 'due'
end

-- The member of a job in an index.
local function member_of(index, id, record)
  if index == 'ready' then
    local standing = struct.pack('>I4I7', 100 - record[PRIORITY] + record[AGE], record[PLACE])
    return record[SUSPECT] .. record[QUEUE] .. '\0' .. standing .. id
  elseif index == 'due' then
    return struct.pack('>I7', record[ROW]) .. id
  elseif index == 'parked' then
    return record[TASK] .. '\0' .. struct.pack('>I7', record[ROW]) .. id
  elseif index == 'held' then
    return record[SESSION] .. '\0' .. record[TOKEN] .. '\0' .. id
  elseif index == 'asked' then
    return record[SESSION] .. '\0' .. id
  end
  return id
end
