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

-- The RESULT group of a tail; without a result, that is stored apart.
local function pack_result(result_ms, result)
  return pack_numbers(RESULT_HEAD, result_ms, result and #result or RESULT_APART) .. (result or '')
end

local function tail_size(bytes)
  return (unpack_numbers('>H', bytes, #bytes - 1))
end

-- From a record to its bytes and back, and the record of a new job. Defined at the first use: a claim and a
-- success change bytes, and most calls need no table.
local pack, unpack_record, new_record

local function define_codec()
  if not pack then
--@insert codec
  end
end

local function queue_of(bytes)
  local size = unpack_numbers('>H', bytes, QUEUE_SIZE_AT)
  return sub(bytes, QUEUE_AT, QUEUE_AT + size - 1)
end

local function task_of(bytes)
  local queue_size, size = unpack_numbers('>HH', bytes, QUEUE_SIZE_AT)
  return sub(bytes, QUEUE_AT + queue_size, QUEUE_AT + queue_size + size - 1)
end

-- When a job expires; -1 for never.
local function expires_ms_of(bytes)
  local queue_size, task_size = unpack_numbers('>HH', bytes, QUEUE_SIZE_AT)
  return string.byte(bytes, 2) % 2 == 1 and unpack_numbers('>i6', bytes, QUEUE_AT + queue_size + task_size) or -1
end

local function is_apart(bytes)
  return string.byte(bytes, 2) % (2 * FLAG_APART) >= FLAG_APART
end

-- The size of a call that is stored in the record.
local function inline_size(bytes)
  local flags = unpack_numbers('>H', bytes)
  local queue_size, task_size = unpack_numbers('>HH', bytes, QUEUE_SIZE_AT)
  local at = QUEUE_AT + queue_size + task_size
  if flags % 2 == 1 then
    at = at + 6
  end
  if flags % (2 * FLAG_UNIQUE) >= FLAG_UNIQUE then
    at = at + 2 + unpack_numbers('>H', bytes, at)
  end
  return #bytes + 1 - at - (flags >= FLAG_TAIL and tail_size(bytes) or 0)
end

-- The counter that counts a job: its line and its state.
local function counter_of(bytes)
  define_codec()
  local record = unpack_record(bytes)
  return record[QUEUE] .. '\0' .. record[STATE]
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
  define_codec()
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
    define_codec()
    record = packed[id] and unpack_record(packed[id])
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
