-- All data of some jobs. Records are not decoded here, and most have no extra fields: a call may read
-- thousands of jobs.
-- KEYS: body extra
-- ARGV: 1-3 clock, then ids
-- Returns: {now_ms, for each id nothing or {record, body, progress or why it is held, result,
--          history ...}}, the history oldest first
--@include records

local fields = {}  -- of `extra`, for all jobs

local function add_field(is_stored, field)
  if is_stored then
    fields[#fields + 1] = field
    return #fields
  end
  return 0
end

-- Add the fields of a job. Returns where its progress and its result are, 0 for none, and the first and the
-- last entry of its history.
local function add_fields(id, bytes)
  local failures = unpack_numbers('>I4', bytes, FAILURES_AT)
  local progress = add_field(string.byte(bytes, MARKS_AT - 1) ~= 0, 'p:' .. id)
  local result = add_field(unpack_numbers('>i6', bytes, SIZES_AT - 6) >= 0, 'r:' .. id)
  local first = #fields + 1
  for entry = math.max(0, failures - MAX_FAILURES), failures - 1 do
    add_field(true, 'f:' .. (entry % MAX_FAILURES) .. ':' .. id)
  end
  return { progress, result, first, #fields }
end

local ids = { unpack(ARGV, 4) }
fetch(ids)
local bodies, places = read_fields(key.body, ids), {}
for number, id in ipairs(ids) do
  places[number] = packed[id] and add_fields(id, packed[id])
end
local extra = read_fields(key.extra, fields)
local reply = { now_ms }
for number, id in ipairs(ids) do
  local at = places[number]
  reply[number + 1] = at and {
    packed[id], bodies[number] or '', extra[at[1]] or false, extra[at[2]] or false, unpack(extra, at[3], at[4]),
  }
end
return reply
