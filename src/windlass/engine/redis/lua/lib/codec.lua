-- Records as tables: the fields of `layout`, from their bytes and to their bytes.
--@include layout
local STATES = { 'waiting', 'scheduled', 'ready', 'running', 'retrying', 'succeeded', 'dead', 'cancelled' }
local HOLDS = { 'none', 'limit', 'breaker', 'unroutable', 'paused' }
local EVENTS = { '', 'succeed', 'retry', 'bury', 'release', 'snooze', 'unroutable' }

-- The record of a new job.
function new_record(row, created_ms, priority, queue, task)
  return {
    0, 0, -1, 0,
    0, 0, -1, -1, -1,
    priority, created_ms, row, row, -1, created_ms,
    0, 0, 0, 0, 0, 0, 0,
    queue, task, '', '', '', 'ready', 'none', '',
    '', '', '', '', '',
  }
end

local function code_of(list, text)
  for code, name in ipairs(list) do
    if name == text then
      return code
    end
  end
  error('no code for ' .. text)
end

-- Whether a job has never been claimed, and its state follows from its due time and its hold.
local function is_new(record)
  local waits = record[HOLD] == 'none' and record[DUE_MS] >= 0
  return record[STATE] == (waits and 'scheduled' or 'ready') and record[STARTS] == 0 and record[ATTEMPT] == 0
    and record[STARTED_MS] < 0 and record[FINISHED_MS] < 0 and record[SESSION] == '' and record[TOKEN] == ''
    and record[LAST_EVENT] == '' and record[LAST_TOKEN] == '' and record[REASON] == ''
end

-- When a job became ready, if its place in line is its row.
local function usual_ready_ms(record, has_run)
  return not has_run and record[STATE] == 'scheduled' and -1 or record[CREATED_MS]
end

local function pack_run(record)
  return pack_numbers(RUN, record[ATTEMPT], record[STARTS], record[STARTED_MS],
    code_of(STATES, record[STATE]), code_of(EVENTS, record[LAST_EVENT]), record[FINISHED_MS],
    #record[SESSION], #record[LAST_TOKEN], #record[REASON], #record[TOKEN])
    .. record[SESSION] .. record[LAST_TOKEN] .. record[REASON] .. record[TOKEN]
end

-- The groups of a record that differ from their defaults, and their flags.
local function pack_tail(record)
  local flags, tail, has_run = 0, '', not is_new(record)
  if has_run then
    flags, tail = FLAG_RUN, pack_run(record)
  end
  if record[DUE_MS] >= 0 then
    flags, tail = flags + FLAG_DUE, tail .. pack_numbers('>i6', record[DUE_MS])
  end
  if record[PLACE] ~= record[ROW] or record[AGE] ~= 0 or record[READY_MS] ~= usual_ready_ms(record, has_run) then
    flags, tail = flags + FLAG_PLACE, tail .. pack_numbers(PLACES, record[PLACE], record[READY_MS], record[AGE])
  end
  if record[CRASHES] + record[LOSSES] + record[INTERRUPTIONS] + record[SNOOZES] + record[STRAYS] + record[FAILURES] > 0 then
    flags, tail = flags + FLAG_BUDGETS, tail .. pack_numbers(BUDGETS, unpack(record, CRASHES, FAILURES))
  end
  if record[HOLD] ~= 'none' or record[SUSPECT] + record[CANCEL_REQUESTED] + record[HAS_PROGRESS] > 0 then
    flags = flags + FLAG_MARKS
    tail = tail .. pack_numbers(MARKS, code_of(HOLDS, record[HOLD]), record[SUSPECT], record[CANCEL_REQUESTED],
      record[HAS_PROGRESS])
  end
  if record[RESULT_MS] >= 0 then
    flags, tail = flags + FLAG_RESULT, tail .. pack_result(record[RESULT_MS], record[RESULT])
  end
  if record[FINGERPRINT] ~= '' then
    flags, tail = flags + FLAG_DEATH, tail .. pack_numbers('>B', #record[FINGERPRINT]) .. record[FINGERPRINT]
  end
  return flags, flags > 0 and tail .. pack_numbers('>H', #tail + 2) or ''
end

function pack(record)
  local flags, tail = pack_tail(record)
  local more = ''
  if record[EXPIRES_MS] >= 0 then
    flags, more = flags + FLAG_EXPIRES, pack_numbers('>i6', record[EXPIRES_MS])
  end
  if record[UNIQUE] ~= '' then
    flags, more = flags + FLAG_UNIQUE, more .. pack_numbers('>H', #record[UNIQUE]) .. record[UNIQUE]
  end
  if not record[CALL] then
    flags = flags + FLAG_APART
  end
  return pack_numbers(HEAD, flags, record[ROW], record[CREATED_MS], record[PRIORITY], #record[QUEUE], #record[TASK])
    .. record[QUEUE] .. record[TASK] .. more .. (record[CALL] or '') .. tail
end

local function has_flag(flags, flag)
  return flags % (2 * flag) >= flag
end

-- Read texts of these sizes into fields of a record; return where the next one begins.
local function read_texts(record, bytes, at, ...)
  local words = { ... }
  for number = 1, #words, 2 do
    local after = at + words[number + 1]
    record[words[number]] = sub(bytes, at, after - 1)
    at = after
  end
  return at
end

local function read_run(record, bytes, at)
  local state, event, session_size, last_size, reason_size, token_size
  record[ATTEMPT], record[STARTS], record[STARTED_MS], state, event, record[FINISHED_MS],
    session_size, last_size, reason_size, token_size, at = unpack_numbers(RUN, bytes, at)
  record[STATE], record[LAST_EVENT] = STATES[state], EVENTS[event]
  return read_texts(record, bytes, at, SESSION, session_size, LAST_TOKEN, last_size, REASON, reason_size,
    TOKEN, token_size)
end

-- Read the groups of a tail.
local function read_tail(record, flags, bytes, at)
  local has_run, has_place = has_flag(flags, FLAG_RUN), has_flag(flags, FLAG_PLACE)
  if has_run then
    at = read_run(record, bytes, at)
  end
  if has_flag(flags, FLAG_DUE) then
    record[DUE_MS], at = unpack_numbers('>i6', bytes, at)
  end
  if has_place then
    record[PLACE], record[READY_MS], record[AGE], at = unpack_numbers(PLACES, bytes, at)
  end
  if has_flag(flags, FLAG_BUDGETS) then
    record[CRASHES], record[LOSSES], record[INTERRUPTIONS], record[SNOOZES], record[STRAYS], record[FAILURES], at =
      unpack_numbers(BUDGETS, bytes, at)
  end
  local hold
  if has_flag(flags, FLAG_MARKS) then
    hold, record[SUSPECT], record[CANCEL_REQUESTED], record[HAS_PROGRESS], at = unpack_numbers(MARKS, bytes, at)
    record[HOLD] = HOLDS[hold]
  end
  if has_flag(flags, FLAG_RESULT) then
    local size
    record[RESULT_MS], size, at = unpack_numbers(RESULT_HEAD, bytes, at)
    record[RESULT] = size ~= RESULT_APART and sub(bytes, at, at + size - 1)
    at = at + #(record[RESULT] or '')
  end
  if has_flag(flags, FLAG_DEATH) then
    local size
    size, at = unpack_numbers('>B', bytes, at)
    record[FINGERPRINT] = sub(bytes, at, at + size - 1)
  end
  if not has_run and record[HOLD] == 'none' and record[DUE_MS] >= 0 then
    record[STATE] = 'scheduled'
  end
  if not has_place then
    record[READY_MS] = usual_ready_ms(record, has_run)
  end
end

function unpack_record(bytes)
  local flags, row, created_ms, priority, queue_size, task_size, at = unpack_numbers(HEAD, bytes)
  local record = new_record(row, created_ms, priority)
  at = read_texts(record, bytes, at, QUEUE, queue_size, TASK, task_size)
  if has_flag(flags, FLAG_EXPIRES) then
    record[EXPIRES_MS], at = unpack_numbers('>i6', bytes, at)
  end
  if has_flag(flags, FLAG_UNIQUE) then
    local size
    size, at = unpack_numbers('>H', bytes, at)
    at = read_texts(record, bytes, at, UNIQUE, size)
  end
  local tail_at = #bytes + 1
  if flags >= FLAG_TAIL then
    tail_at = tail_at - tail_size(bytes)
    read_tail(record, flags, bytes, tail_at)
  end
  record[CALL] = not has_flag(flags, FLAG_APART) and sub(bytes, at, tail_at - 1)
  return record
end
