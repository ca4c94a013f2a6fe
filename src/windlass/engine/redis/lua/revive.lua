-- Make dead or cancelled jobs ready again, with fresh budgets.
-- ARGV: 1-3 clock, then for each job its id, when it ended (-1 = at any time) and a new payload or ""
-- Returns: for each job "done", "refused", "duplicate" (another job holds its key) or "unknown"
--@include unique

-- Whether no other job holds the unique key; if so, the key points to this one from now on.
local function take_key(id, record)
  if record[UNIQUE] == '' then
    return true
  end
  local _, _, name = read_unique(record)
  local holder = find_holder(record[TASK], name)
  if holder and holder ~= id then
    return false
  end
  lead(record[TASK], name, id)
  return true
end

-- With a new payload, the old one becomes an entry of the history, in the same step.
local function revive(id, record, payload)
  local old
  if payload ~= '' then
    old = read_call(id, record)
    write_call(id, record, payload)
  end
  move(id, record, 'revive', { cause = old })
  reset_budgets(id, record)
  record[REASON], record[FINISHED_MS] = '', -1
  record[EXPIRES_MS] = -1  -- otherwise it would expire again
  record[CANCEL_REQUESTED] = 0
end

local function try(id, finished_ms, payload)
  local record = load(id)
  if not record then
    return 'unknown'
  elseif record[STATE] ~= 'dead' and record[STATE] ~= 'cancelled' then
    return 'refused'
  elseif finished_ms >= 0 and finished_ms ~= record[FINISHED_MS] then
    return 'refused'
  elseif not take_key(id, record) then
    return 'duplicate'
  end
  revive(id, record, payload)
  return 'done'
end

local ids = {}
for at = 4, #ARGV, 3 do
  ids[#ids + 1] = ARGV[at]
end
fetch(ids)
local reply = {}
for number, id in ipairs(ids) do
  local at = 3 * number + 1
  reply[number] = try(id, tonumber(ARGV[at + 1]), ARGV[at + 2])
end
settle()
return reply
