-- Store new jobs, some with a unique key. These have four more fields: the key, until when it is held, for at
-- least how long, and what to do while another job holds it; see `encode` for a fifth. A put that replaced
-- the call of a job is remembered, so that a repeat changes nothing: the last put of a job with the job,
-- earlier ones for a while among the idempotency keys.
-- ARGV: 1-3 clock, then for each job its fields, as in `new_jobs`, and its body
-- Returns: for each job its id, or the id of the job that has its key, then "created", "existing",
--          "conflict", "replaced", "duplicate" or "full"
--@adds
--@include put
--@include unique

local function unique_text(new_job)
  local period_until_ms = new_job[13] > 0 and now_ms + new_job[13] or 0
  return new_job[12] .. ' ' .. text_of(period_until_ms) .. ' ' .. new_job[11]
end

local function remember_replaced(id, new_id)
  local before = call('HGET', key.extra, 's:' .. id)
  call('HSET', key.extra, 's:' .. id, new_id, 'w:' .. new_id, id)
  if before and before ~= new_id then
    local until_ms = now_ms + MIN_RECORD_MS
    call('HSET', key.keys, 'w:' .. before, cmsgpack.pack({ id, '', until_ms }))
    call('ZADD', key.key_expiry, until_ms, 'w:' .. before)
    call('HDEL', key.extra, 'w:' .. before)
  end
end

-- The job that took over the call of a put. It may have the call of a later put by now.
local function find_replaced(id)
  local holder = call('HGET', key.extra, 'w:' .. id)
  if holder then
    return holder
  end
  local entry = find_key('w:' .. id)
  return entry and entry[1]
end

-- A waiting job takes over the call of another put, and stays in line if it stays ready.
local function replace(id, record, new_job, body)
  local was_ready, was_in = record[STATE] == 'ready', base_of(record[QUEUE])
  local due_ms = due_ms_of(new_job)
  local is_ready = due_ms <= now_ms
  leave(id, record)
  count(record[QUEUE], record[STATE], -1)
--@insert steps
  forget_steps(id)  -- they are parts of the old call
  reset_budgets(id, record)
  record[SUSPECT], record[HOLD], record[STATE] = 0, 'none', is_ready and 'ready' or 'scheduled'
  record[QUEUE], record[PRIORITY], record[EXPIRES_MS] = new_job[3], new_job[4], expires_ms(new_job)
  record[DUE_MS], record[UNIQUE] = is_ready and -1 or due_ms, unique_text(new_job)
  if not is_ready then
    record[READY_MS] = -1
  elseif not was_ready then
    record[PLACE], record[READY_MS] = next_number(), now_ms
  end
  if not (is_ready and was_ready and was_in == base_of(record[QUEUE])) then
    record[AGE] = is_ready and take_age(record[QUEUE]) or 0
  end
  write_call(id, record, body)
  enter(id, record)
  count(record[QUEUE], record[STATE], 1)
  total('replaced')
  remember_replaced(id, new_job[1])
end

-- The job that holds the key of a new one. A waiting holder that can only expire is cancelled first:
-- otherwise the new call would be lost with it.
local function find_obstacle(task, name)
  local id, record = find_holder(task, name)
  if not id or not QUEUED[record[STATE]] or record[EXPIRES_MS] < 0 or record[EXPIRES_MS] > now_ms then
    return id, record
  end
  if record[STATE] ~= 'ready' then
    move(id, record, 'due')
  end
  move(id, record, 'expire', { reason = 'expired' })
  return find_holder(task, name)
end

-- The reply for a job whose unique key is held, or that has replaced another before.
local function meet(new_job, body)
  local on_conflict = new_job[14]
  local replaced = on_conflict == 'replace' and find_replaced(new_job[1])
  if replaced then
    return replaced, 'replaced'
  end
  flush()  -- a job that this call stored may hold the key, and be moved
  local id, record = find_obstacle(new_job[2], new_job[11])
  if not id then
    return nil
  elseif on_conflict == 'return' then
    return id, 'existing'
  elseif on_conflict == 'raise' or not QUEUED[record[STATE]] then
    return id, 'duplicate'
  end
  replace(id, record, new_job, body)
  return id, 'replaced'
end

return put_all(function(new_job, body)
  local id, code = find_known(new_job)
  if not id and new_job[11] then
    id, code = meet(new_job, body)
  end
  if id then
    return id, code
  end
  if not new_job[11] then
    return add_job(new_job, body, '')
  end
  id, code = add_job(new_job, body, unique_text(new_job))
  if code == 'created' then
    lead(new_job[2], new_job[11], new_job[1])
  end
  return id, code
end)
