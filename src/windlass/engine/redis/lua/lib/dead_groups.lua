-- Groups of dead jobs: by fingerprint, release, queue without labels, and task. `deaths` lists the dead jobs of
-- each group by the instant of their death, and `dead_groups` has the number of jobs of each group.
-- Inserted where it is needed: a call that ends no job as dead defines nothing of it.
-- KEYS: deaths dead_groups

function group_of(record)
  local release = string.match(record[SESSION], '^[^@]*@(.*)$') or ''
  return table.concat({ record[FINGERPRINT], release, base_of(record[QUEUE]), record[TASK] }, '\0')
end

function death_of(id, record)
  return group_of(record) .. '\0' .. pack_numbers('>I6', math.max(record[FINISHED_MS], 0)) .. id
end

local function add_to_group(group, by)
  if tonumber(call('ZADD', key.dead_groups, 'INCR', by, group)) <= 0 then
    call('ZREM', key.dead_groups, group)
  end
end

function enter_group(id, record)
  if call('ZADD', key.deaths, '0', death_of(id, record)) == 1 then
    add_to_group(group_of(record), '1')
  end
end

-- A job that a worker of an earlier version ended is in no group.
function leave_group(id, record)
  if call('ZREM', key.deaths, death_of(id, record)) == 1 then
    add_to_group(group_of(record), '-1')
  end
end
