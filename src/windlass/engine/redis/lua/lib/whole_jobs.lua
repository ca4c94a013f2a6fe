-- Read all data of some jobs: for each id nothing or {record, body, progress or why it is held, result,
-- history ...}, the history oldest first. Records are not decoded, and most have no extra fields: a call may
-- read thousands of jobs.
-- KEYS: body extra
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
local function add_fields(id)
  local record = load(id)
  local progress = add_field(record[HAS_PROGRESS] ~= 0, 'p:' .. id)
  local result = add_field(record[RESULT_MS] >= 0 and not record[RESULT], 'r:' .. id)
  local first = #fields + 1
  for entry = math.max(0, record[FAILURES] - MAX_FAILURES), record[FAILURES] - 1 do
    add_field(true, 'f:' .. (entry % MAX_FAILURES) .. ':' .. id)
  end
  return { progress, result, first, #fields }
end

-- Whether a job may have fields in `extra`, by its flags.
local function has_fields(bytes)
  return unpack_numbers('>H', bytes) >= FLAG_BUDGETS
end

local NOTHING = { 0, 0, 1, 0 }

local function read_jobs(ids)
  fetch(ids)
  local places, apart, bodies = {}, {}, {}
  for number, id in ipairs(ids) do
    local bytes = packed[id]
    places[number] = bytes and (has_fields(bytes) and add_fields(id) or NOTHING)
    if bytes and is_apart(bytes) then
      apart[#apart + 1] = id
    end
  end
  for number, body in ipairs(read_fields(key.body, apart)) do
    bodies[apart[number]] = body or ''
  end
  local extra = read_fields(key.extra, fields)
  local found = {}
  for number, id in ipairs(ids) do
    local at = places[number]
    found[number] = at and {
      packed[id], bodies[id] or '', extra[at[1]] or false, extra[at[2]] or false, unpack(extra, at[3], at[4]),
    }
  end
  return found
end
