-- Move one batch of a partition of format 3 into this one. Each batch is one step: a job is in one of the two
-- formats at any time, also while workers of both versions run. Format 3 stored the call of a job under
-- `body`, every id in `ids`, and its keys under other names. Format 3 never ran on a cluster, so this script
-- also touches keys that it does not declare.
-- KEYS: schedule schedule_names schedule_due keys key_expiry
-- ARGV: 1-3 clock, 4 the step, 5 cursor ("0" = begin), 6 what the names of the old keys begin with
-- Returns: {next cursor ("" = at the end), number of moved jobs, in the last step number of jobs that are
--          left: they run for a live worker of the old version, or came since}
--@adds
--@include sessions
--@include unique
local OLD_NUMBERS = '>I4I4i6BBBi6i6i6BHBBBHHbi6i6i6i6i6I4I4I4I4I4I4I4HHH'
local moved, left, far = 0, 0, ''

local function old(name)
  return ARGV[6] .. name
end

local function read_old(bytes)
  local n = { unpack_numbers(OLD_NUMBERS, bytes) }
  local record = new_record(n[19], n[18], n[17])
  record[ATTEMPT], record[STARTS], record[STARTED_MS], record[HAS_PROGRESS] = n[1], n[2], n[3], n[4]
  record[SUSPECT], record[CANCEL_REQUESTED], record[DUE_MS] = n[5], n[6], n[7]
  record[FINISHED_MS], record[RESULT_MS] = n[8], n[9]
  record[PLACE], record[EXPIRES_MS], record[READY_MS] = n[20], n[21], n[22]
  record[CRASHES], record[LOSSES], record[INTERRUPTIONS], record[SNOOZES] = n[23], n[24], n[25], n[26]
  record[STRAYS], record[FAILURES], record[AGE] = n[27], n[28], n[29]
  local at = n[33]
  local texts = { { QUEUE, n[30] }, { TASK, n[31] }, { UNIQUE, n[32] }, { LAST_EVENT, n[10] }, { LAST_TOKEN, n[11] },
    { STATE, n[12] }, { HOLD, n[13] }, { REASON, n[14] }, { SESSION, n[15] }, { TOKEN, n[16] } }
  for _, text in ipairs(texts) do
    record[text[1]] = sub(bytes, at, at + text[2] - 1)
    at = at + text[2]
  end
  return record
end

-- After a silence of all old workers the server was down, and not the workers: no lease counts as expired
-- until they had time for a heartbeat.
local function is_after_silence()
  local found = call('HMGET', old('meta'), 'last_seen', 'reap_after')
  local last_seen_ms = tonumber(found[1] or -1)
  return now_ms < tonumber(found[2] or 0)
    or last_seen_ms >= 0 and now_ms - last_seen_ms > math.floor(lease_ms / 2) and now_ms - last_seen_ms <= 2 * lease_ms
end

-- Whether a live worker of the old version may run this job. The job of a dead one is moved as lost,
-- because no old worker may be left to recover it.
local function has_live_worker(record)
  if record[STATE] ~= 'running' then
    return false
  end
  local until_ms = call('ZSCORE', old('lease'), record[SESSION])
  return until_ms and (tonumber(until_ms) > now_ms or is_after_silence())
end

local function remove_old(id, record)
  for _, name in ipairs({ 'job', 'body' }) do
    call('HDEL', old(name), id)
  end
  for _, name in ipairs({ 'ids', 'keep', 'dead' }) do
    call('ZREM', old(name), id)
  end
  for _, name in ipairs({ 'ready', 'due', 'parked', 'held' }) do
    call('ZREM', old(name), member_of(name, id, record))
  end
  call('ZREM', old('asked'), record[SESSION] .. '\0' .. id)
  if call('HINCRBY', old('count'), record[QUEUE] .. '\0' .. record[STATE], -1) <= 0 then
    call('HDEL', old('count'), record[QUEUE] .. '\0' .. record[STATE])
  end
end

-- Results, progress, history, and what belongs to keys. A small result moves into the record.
local function move_extra(id, record)
  local fields = { 'p:' .. id, 'k:' .. id, 's:' .. id }
  for number = 0, math.min(record[FAILURES], MAX_FAILURES) - 1 do
    fields[#fields + 1] = 'f:' .. number .. ':' .. id
  end
  local replaced = call('HGET', old('extra'), 's:' .. id)
  if replaced then
    fields[#fields + 1] = 'w:' .. replaced
  end
  for _, field in ipairs(fields) do
    local value = call('HGET', old('extra'), field)
    if value then
      call('HSET', key.extra, field, value)
      call('HDEL', old('extra'), field)
    end
  end
  local result = call('HGET', old('extra'), 'r:' .. id)
  if result and record[RESULT_MS] >= 0 then
    record[RESULT] = #result <= MOST_INLINE_RESULT and result
    if not record[RESULT] then
      call('HSET', key.extra, 'r:' .. id, result)
    end
  else
    record[RESULT_MS] = -1
  end
  call('HDEL', old('extra'), 'r:' .. id)
end

local function move_unique(id, record)
  if record[UNIQUE] ~= '' then
    local _, _, name = read_unique(record)
    local member = unique_prefix(record[TASK], name) .. id
    if call('ZREM', old('unique'), member) == 1 and not last_stored(record[TASK], name) then
      call('ZADD', key.unique, 0, member)
    end
  end
end

local function move_job(id, record)
  local keep_ms = call('ZSCORE', old('keep'), id)
  write_call(id, record, call('HGET', old('body'), id) or '')
  move_extra(id, record)
  move_unique(id, record)
  remove_old(id, record)
  records[id], packed[id] = record, false
  sequence = math.max(sequence, record[ROW], record[PLACE])
  count(record[QUEUE], record[STATE], 1)
  enter(id, record, keep_ms and tonumber(keep_ms) or now_ms)
  if record[CANCEL_REQUESTED] == 1 and record[STATE] == 'running' then
    write('ZADD', key.asked, 0, record[SESSION] .. '\0' .. id)
  end
  if record[STATE] == 'dead' then
    define_groups()
    enter_group(id, record)
  end
  flush()
  if record[STATE] == 'running' then  -- its worker is dead
    move(id, record, 'lose', { cause = '' })
    flush()
  end
  moved = moved + 1
end

local STEPS = {}

function STEPS.jobs()
  define_codec()
  local found = call('HSCAN', old('job'), ARGV[5], 'COUNT', BITE / 2)
  for at = 1, #found[2], 2 do
    local id, bytes = found[2][at], found[2][at + 1]
    if id ~= '' and #bytes >= 110 then
      local record = read_old(bytes)
      if not has_live_worker(record) then
        if bytes_of(id) then
          remove_old(id, record)  -- a repeated put of an old producer, or an occurrence that both versions made
        else
          move_job(id, record)
        end
      end
    end
  end
  far = found[1] ~= '0' and found[1] or ''
end

-- Settings of queues, paused tasks and totals: once, because they may be changed from then on.
function STEPS.settings()
  local fields = call('HGETALL', old('meta'))
  if #fields == 0 or call('HSETNX', key.meta, 'migrated', '3') == 0 then
    return
  end
  local number = 0
  for at = 1, #fields, 2 do
    local field, value = fields[at], fields[at + 1]
    if sub(field, 1, 2) == 'q:' then
      number = number + call('HSETNX', key.meta, field, value)
    elseif field == 'aged' then
      call('HSETNX', key.meta, field, value)
    elseif field == 'sequence' then
      sequence = math.max(sequence, tonumber(value))
    elseif field == 'enqueued' then
      call('HINCRBY', key.meta, field, value)
    end
  end
  if number > 0 then
    call('HINCRBY', key.meta, 'queues', number)
  end
  local totals_before = call('HGETALL', old('total'))
  for at = 1, #totals_before, 2 do
    if totals_before[at] ~= '' then
      call('HINCRBY', key.total, totals_before[at], totals_before[at + 1])
    end
  end
  stored_sequence = -1  -- so that it is written
end

-- Idempotency keys.
function STEPS.keys()
  local found = call('HSCAN', old('keys'), ARGV[5], 'COUNT', BITE)
  for at = 1, #found[2], 2 do
    local field, value = found[2][at], found[2][at + 1]
    local until_ms = field ~= '' and call('ZSCORE', old('key_expiry'), field)
    if until_ms then
      -- A copy: a producer of the old version must still find the key.
      if call('HSETNX', key.keys, field, value) == 1 then
        call('ZADD', key.key_expiry, until_ms, field)
      end
    end
  end
  far = found[1] ~= '0' and found[1] or ''
end

-- A worker of the old version that still runs declares its schedules again after a minute.
function STEPS.schedules()
  for _, name in ipairs(call('ZRANGE', old('schedule_names'), 0, BITE)) do
    if name ~= '' then
      local is_new = not call('ZSCORE', key.schedule_names, name)
      for _, part in ipairs({ 'r:', 'n:', 'b:' }) do
        local value = call('HGET', old('schedule'), part .. name)
        if is_new and value then
          call('HSET', key.schedule, part .. name, value)
        end
        call('HDEL', old('schedule'), part .. name)
      end
      local due_ms = call('ZSCORE', old('schedule_due'), name)
      if is_new then
        call('ZADD', key.schedule_names, 0, name)
        if due_ms then
          call('ZADD', key.schedule_due, due_ms, name)
        end
      end
      call('ZREM', old('schedule_due'), name)
      call('ZREM', old('schedule_names'), name)
    end
  end
  far = call('ZCARD', old('schedule_names')) > 1 and '0' or ''
end

-- Remove the keys of the old format, once no job and no live worker uses them.
function STEPS.remove()
  local now = text_of(now_ms)
  left = math.max(0, call('HLEN', old('job')) - 1)
  if left > 0 or #call('ZRANGEBYSCORE', old('lease'), '(' .. now, '(+inf', 'LIMIT', 0, 1) > 0 then
    return
  end
  for _, name in ipairs({ 'job', 'body', 'extra', 'sessions', 'keys', 'count', 'total', 'waiters', 'watch', 'schedule', 'meta' }) do
    local fields = call('HGETALL', old(name))
    for at = 1, #fields, 2 do
      call('HDEL', old(name), fields[at])
    end
  end
  for _, name in ipairs({ 'ids', 'ready', 'lines', 'due', 'parked', 'held', 'asked', 'keep', 'dead', 'lease', 'forget',
      'key_expiry', 'idle', 'unique', 'watch_until', 'schedule_names', 'schedule_due' }) do
    for _, member in ipairs(call('ZRANGE', old(name), 0, -1)) do
      call('ZREM', old(name), member)
    end
  end
end

STEPS[ARGV[4]]()
settle()
return { far, moved, left }
