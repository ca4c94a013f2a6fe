-- Change the state of a job, as windlass.core.states defines. Only a claim and a success have their own
-- code, in `claim` and `finish`, because they happen to every job.
-- `leave` removes a job from every index that its record names, `enter` adds it again after the record
-- was changed.
-- KEYS: ready due parked held asked keep cancelled dead extra body
--@include bookkeeping
--@include watchers
local TARGETS = {
  due = 'ready', retry = 'retrying', bury = 'dead', release = 'ready', snooze = 'scheduled', unroutable = 'ready', lose = 'ready', crash = 'ready',
  suspect = 'ready', cancel = 'cancelled', expire = 'cancelled', revive = 'ready',
}
local AFTER_CANCEL_REQUEST = {
  retry = true, bury = true, release = true, snooze = true, unroutable = true, lose = true,
  crash = true, suspect = true,
}
local CHARGES = {
  release = { [ATTEMPT] = -1, [INTERRUPTIONS] = 1 },
  suspect = { [ATTEMPT] = -1, [INTERRUPTIONS] = 1 },
  snooze = { [ATTEMPT] = -1, [SNOOZES] = 1 },
  unroutable = { [ATTEMPT] = -1, [STARTS] = -1, [STRAYS] = 1 },
  lose = { [ATTEMPT] = -1, [LOSSES] = 1 },
  crash = { [ATTEMPT] = -1, [CRASHES] = 1 },
}
local UNSTARTED = {
  release = { [ATTEMPT] = -1, [STARTS] = -1 },
  bury = { [ATTEMPT] = -1, [STARTS] = -1 },
}
local REQUEUEING = { due = true, revive = true }
local CLEARING = { retry = true, bury = true, snooze = true, revive = true }
local SUSPECTING = { crash = true, suspect = true }
local COUNTED = {
  retry = 'retried', lose = 'lost', crash = 'crashed', expire = 'expired', snooze = 'snoozed',
  unroutable = 'unroutable',
}

local group_of, death_of, enter_group, leave_group  -- of dead jobs; defined at the first use

local function define_groups()
  if not enter_group then
--@insert dead_groups
  end
end

local function leave(id, record)
  local state = record[STATE]
  if state == 'running' then
    write('ZREM', key.held, member_of('held', id, record))
    if record[CANCEL_REQUESTED] == 1 then
      write('ZREM', key.asked, member_of('asked', id, record))
    end
  elseif FINAL[state] then
    write('ZREM', key[FINAL[state]], id)
  elseif state == 'ready' and record[HOLD] == 'none' then
    touch(record[SUSPECT] .. record[QUEUE])
    write('ZREM', key.ready, member_of('ready', id, record))
  else
    write('ZREM', key.due, member_of('due', id, record))
    if record[HOLD] ~= 'none' then
      write('ZREM', key.parked, member_of('parked', id, record))
    end
  end
end

local function enter(id, record, keep_ms)
  local state = record[STATE]
  if state == 'running' then
    write('ZADD', key.held, 0, member_of('held', id, record))
  elseif FINAL[state] then
    write('ZADD', key[FINAL[state]], keep_ms, id)
    visits[id] = keep_ms
  elseif state == 'ready' and record[HOLD] == 'none' then
    touch(record[SUSPECT] .. record[QUEUE])
    write('ZADD', key.ready, 0, member_of('ready', id, record))
    note_ready(record[SUSPECT], record[QUEUE], now_ms, record[TASK])
  else
    write('ZADD', key.due, record[DUE_MS], member_of('due', id, record))
    if record[HOLD] ~= 'none' then
      write('ZADD', key.parked, 0, member_of('parked', id, record))
    end
    note_ready(record[SUSPECT], record[QUEUE], record[DUE_MS])
  end
  save(id)
end

-- The call of a job.
local function read_call(id, record)
  return record[CALL] or call('HGET', key.body, id) or ''
end

-- Replace the call of a job; its record must be saved after this.
local function write_call(id, record, body)
  local is_inline = #body <= MOST_INLINE_CALL
  if not is_inline then
    call('HSET', key.body, id, body)
  elseif not record[CALL] then
    call('HDEL', key.body, id)
  end
  record[CALL] = is_inline and body
end

-- Add an entry to the history; the oldest one is dropped if the history is full.
local function remember(id, record, event, cause)
  local head = cmsgpack.pack({ now_ms, event, record[ATTEMPT], record[SESSION], record[STARTED_MS] })
  local field = 'f:' .. (record[FAILURES] % MAX_FAILURES) .. ':' .. id
  write('HSET', key.extra, field, struct.pack('>I2', #head) .. head .. cause)
  record[FAILURES] = record[FAILURES] + 1
end

local function charge(record, event, started)
  local charges = CHARGES[event]
  if not started then
    charges = UNSTARTED[event]
  end
  for field, by in pairs(charges or {}) do
    record[field] = record[field] + by
  end
end

local function finish_record(record, event, target, reason)
  record[FINISHED_MS] = now_ms
  if target == 'cancelled' and event ~= 'expire' then
    reason = 'cancelled'
  end
  record[REASON] = reason or ''
  total(target)
end

-- Apply an event to a job in a state that allows it. `given` may hold: unstarted, cause (text for the
-- history), delay_ms, reason, alone (the job must run alone from now on), fingerprint.
local function move(id, record, event, given)
  given = given or {}
  leave(id, record)
  if record[STATE] == 'dead' then
    define_groups()
    leave_group(id, record)
    record[FINGERPRINT] = ''
  end
  if given.cause then
    remember(id, record, event, given.cause)
  end
  local source, target = record[STATE], TARGETS[event]
  if record[CANCEL_REQUESTED] == 1 and AFTER_CANCEL_REQUEST[event] then
    target = 'cancelled'
  end
  charge(record, event, not given.unstarted)
  local due_ms = record[DUE_MS]
  record[TOKEN], record[HOLD], record[DUE_MS] = '', 'none', -1
  if REQUEUEING[event] then
    record[PLACE], record[AGE] = next_number(), take_age(record[QUEUE])
    record[READY_MS] = event == 'due' and due_ms >= 0 and due_ms or now_ms
  end
  if CLEARING[event] then
    record[SUSPECT] = 0
  elseif SUSPECTING[event] or given.alone
      or event == 'lose' and record[LOSSES] >= SUSPECT_AFTER_LOSSES then
    record[SUSPECT] = 1
  end
  if FINAL[target] then
    finish_record(record, event, target, given.reason)
  elseif given.delay_ms then
    record[DUE_MS] = math.min(now_ms + given.delay_ms, LATEST_MS)
  end
  if event == 'unroutable' and target == 'ready' then
    record[HOLD] = 'unroutable'
  end
  if FINAL[target] then
    ends[#ends + 1] = id
  end
  record[STATE] = target
  if target == 'dead' then
    record[FINGERPRINT] = given.fingerprint or ''
    define_groups()
    enter_group(id, record)
  end
  count(record[QUEUE], source, -1)
  count(record[QUEUE], target, 1)
  if COUNTED[event] then
    total(COUNTED[event])
  end
  enter(id, record, now_ms + math.max(dead_ttl_ms, MIN_RECORD_MS))
end

-- End the hold of a job, which is still in its old place.
local function offer_again(id, record)
  leave(id, record)
  record[HOLD], record[DUE_MS] = 'none', -1
  enter(id, record)
end
