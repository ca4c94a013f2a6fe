-- Remove a job.
-- KEYS: body keys key_expiry
--@include unique
--@include steps

-- Free the idempotency key of a removed job. While the job waited, its key may have expired, and belong
-- to another job by now.
local function free_key(id)
  local field = call('HGET', key.extra, 'k:' .. id)
  local found = field and call('HGET', key.keys, field)
  if found and cmsgpack.unpack(found)[1] == id then
    write('HDEL', key.keys, field)
    write('ZREM', key.key_expiry, field)
  end
end

-- Free its unique key, unless the key points to another job by now.
local function forget_unique(id, record)
  local _, _, name = read_unique(record)
  call('ZREM', key.unique, unique_prefix(record[TASK], name) .. id)
  local new_id = call('HGET', key.extra, 's:' .. id)
  if new_id then
    call('HDEL', key.extra, 's:' .. id, 'w:' .. new_id)
  end
end

local function remove(id, record)
  leave(id, record)
  if record[STATE] == 'dead' then
    define_groups()
    leave_group(id, record)
  end
  write('HDEL', key.job, id)
  if not record[CALL] then
    write('HDEL', key.body, id)
  end
  write('HDEL', key.extra, 'r:' .. id, 'p:' .. id)
  write('HDEL', key.extra, 'k:' .. id)
  forget_steps(id)
  for number = 0, math.min(record[FAILURES], MAX_FAILURES) - 1 do
    write('HDEL', key.extra, 'f:' .. number .. ':' .. id)
  end
  if record[UNIQUE] ~= '' then
    forget_unique(id, record)
  end
  count(record[QUEUE], record[STATE], -1)
  if note_change then
    note_change(id, packed[id], false)
  end
  records[id], packed[id], changed[id] = false, false, nil
  ends[#ends + 1] = id
end
