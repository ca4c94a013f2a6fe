-- Records of jobs, read once and written once per call; writes are gathered and sent in chunks.
-- An instant that is not set is -1, text that is not set is empty.
-- KEYS: job
--@include constants
--@include clock
local TASK, QUEUE, PRIORITY, CREATED_MS, ROW, PLACE, STATE, HOLD, REASON = 1, 2, 3, 4, 5, 6, 7, 8, 9
local SUSPECT, CANCEL_REQUESTED = 10, 11
local ATTEMPT, STARTS, CRASHES, LOSSES, INTERRUPTIONS, SNOOZES, STRAYS = 12, 13, 14, 15, 16, 17, 18
local READY_MS, DUE_MS, EXPIRES_MS, STARTED_MS, FINISHED_MS = 19, 20, 21, 22, 23
local RESULT_MS = 24
local SESSION, TOKEN, LAST_TOKEN, LAST_EVENT = 25, 26, 27, 28
local FAILURES, HAS_PROGRESS = 29, 30

local records = {}  -- id -> record, or false when there is none
local packed = {}   -- id -> the record as it is stored
local changed = {}
local pending, order = {}, {}

-- Gather a write of one or two words; it is sent by flush.
local function write(command, name, one, two)
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
  local last = #arguments
  arguments[last + 1] = one
  arguments[last + 2] = two
end

local function save(id)
  changed[id] = true
end

-- Send what was gathered. An index must not be read between a write to it and this.
local function flush()
  for id in pairs(changed) do
    packed[id] = cmsgpack.pack(records[id])
    write('HSET', key.job, id, packed[id])
  end
  for _, entry in ipairs(order) do
    local arguments = entry[3]
    for from = 1, #arguments, CHUNK do
      call(entry[1], entry[2], unpack(arguments, from, math.min(from + CHUNK - 1, #arguments)))
    end
  end
  changed, pending, order = {}, {}, {}
end

local function read_fields(name, fields)
  local values = {}
  for from = 1, #fields, CHUNK do
    local found = call('HMGET', name, unpack(fields, from, math.min(from + CHUNK - 1, #fields)))
    for number = 1, #found do
      values[from + number - 1] = found[number]
    end
  end
  return values
end

-- Read many records at once, for load.
local function fetch(ids)
  local missing = {}
  for _, id in ipairs(ids) do
    if records[id] == nil then
      missing[#missing + 1] = id
    end
  end
  local found = read_fields(key.job, missing)
  for number, id in ipairs(missing) do
    packed[id] = found[number]
    records[id] = found[number] and cmsgpack.unpack(found[number])
  end
end

-- The record of a job, or false.
local function load(id)
  if records[id] == nil then
    fetch({ id })
  end
  return records[id]
end
