-- Read and write the records of jobs, each at most once per call; writes are sent in chunks. In Lua, a
-- record is a table; `layout` defines its stored form.
-- KEYS: job
--@include constants
--@include clock
--@include layout
local records = {}  -- id -> record, false when there is none, nil when it was not decoded
local packed = {}   -- id -> the record as it is stored, or false
local changed = {}  -- id -> true when its table was changed since it was packed
local pending, order = {}, {}
local touched = {}  -- suspects and line -> its first member of `ready` before it was changed, or false
local update_lines
local note_change  -- set while counters are recounted: id, bytes before, bytes now; false for none

local function pack(record)
  local numbers = pack_numbers(NUMBERS,
    record[ATTEMPT], record[STARTS], record[STARTED_MS], record[HAS_PROGRESS],
    record[SUSPECT], record[CANCEL_REQUESTED], record[DUE_MS], record[FINISHED_MS], record[RESULT_MS],
    #record[LAST_EVENT], #record[LAST_TOKEN], #record[STATE], #record[HOLD], #record[REASON],
    #record[SESSION], #record[TOKEN],
    record[PRIORITY], record[CREATED_MS], record[ROW], record[PLACE], record[EXPIRES_MS],
    record[READY_MS], record[CRASHES], record[LOSSES], record[INTERRUPTIONS], record[SNOOZES],
    record[STRAYS], record[FAILURES], record[AGE], #record[QUEUE], #record[TASK], #record[UNIQUE])
  return numbers .. table.concat(record, '', QUEUE, TOKEN)
end

local function take_apart(bytes)
  local record = { unpack_numbers(NUMBERS, bytes) }
  local at = record[33]  -- after the numbers
  for number, size in ipairs({ 30, 31, 32, 10, 11, 12, 13, 14, 15, 16 }) do
    local after = at + record[size]
    record[QUEUE + number - 1] = sub(bytes, at, after - 1)
    at = after
  end
  return record
end

local function queue_of(bytes)
  local size = unpack_numbers('>H', bytes, QUEUE_SIZE_AT)
  return sub(bytes, QUEUE_AT, QUEUE_AT + size - 1)
end

local function task_of(bytes)
  local queue_size, size = unpack_numbers('>HH', bytes, QUEUE_SIZE_AT)
  return sub(bytes, QUEUE_AT + queue_size, QUEUE_AT + queue_size + size - 1)
end

-- The counter that counts a job: its line and its state.
local function counter_of(bytes)
  local state_size, hold_size, reason_size, session_size, token_size =
    unpack_numbers('>BBBHH', bytes, SIZES_AT + 3)
  local texts = state_size + hold_size + reason_size + session_size + token_size
  return queue_of(bytes) .. '\0' .. sub(bytes, -texts, state_size - texts - 1)
end

-- The list that gathers the words of a command on a key; flush sends it.
local function gather(command, name)
  local by_name = pending[command]
  if not by_name then
    by_name = {}
    pending[command] = by_name
  end
  local arguments = by_name[name]
  if not arguments then
    arguments = {}
    by_name[name] = arguments
    order[#order + 1] = { command, name, arguments }
  end
  return arguments
end

-- Gather a write of one or two words.
local function write(command, name, one, two)
  local arguments = gather(command, name)
  local last = #arguments
  arguments[last + 1] = one
  arguments[last + 2] = two
end

-- Note that the table of a record was changed.
local function save(id)
  changed[id] = true
end

-- Store the changed bytes of a record.
local function save_bytes(id, bytes)
  if note_change then
    note_change(id, packed[id], bytes)
  end
  packed[id], records[id] = bytes, nil
  write('HSET', key.job, id, bytes)
end

local function pack_again(id)
  local bytes = pack(records[id])
  if note_change then
    note_change(id, packed[id], bytes)
  end
  packed[id], changed[id] = bytes, nil
  write('HSET', key.job, id, packed[id])
end

-- Send gathered writes. An index must not be read between a write to it and this.
local function flush()
  for id in pairs(changed) do
    pack_again(id)
  end
  for _, entry in ipairs(order) do
    local arguments = entry[3]
    for from = 1, #arguments, CHUNK do
      call(entry[1], entry[2], unpack(arguments, from, math.min(from + CHUNK - 1, #arguments)))
    end
  end
  pending, order = {}, {}
  if next(touched) then
    update_lines()
  end
end

local function read_fields(name, fields)
  if #fields > 0 and #fields <= CHUNK then
    return call('HMGET', name, unpack(fields))
  end
  local values = {}
  for from = 1, #fields, CHUNK do
    local found = call('HMGET', name, unpack(fields, from, math.min(from + CHUNK - 1, #fields)))
    for number = 1, #found do
      values[from + number - 1] = found[number]
    end
  end
  return values
end

-- Read many records at once.
local function fetch(ids)
  local missing = {}
  for _, id in ipairs(ids) do
    if packed[id] == nil and records[id] == nil then
      missing[#missing + 1] = id
    end
  end
  local found = read_fields(key.job, missing)
  for number, id in ipairs(missing) do
    local bytes = found[number]
    packed[id] = bytes and #bytes >= QUEUE_AT and bytes  -- shorter bytes are no record
  end
end

-- The record of a job, or false.
local function load(id)
  local record = records[id]
  if record == nil then
    if packed[id] == nil then
      fetch({ id })
    end
    record = packed[id] and take_apart(packed[id])
    records[id] = record
  end
  return record
end

-- The current bytes of a record, or false.
local function bytes_of(id)
  if changed[id] then
    pack_again(id)
  elseif packed[id] == nil then
    fetch({ id })
  end
  return packed[id]
end
