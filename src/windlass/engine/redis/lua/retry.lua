-- Make dead or cancelled jobs ready again, with fresh budgets.
-- ARGV: 1-3 clock, then ids
-- Returns: for each id "done", "refused", "duplicate" (another job holds its unique key) or "unknown"
--@include unique

-- Whether no other job holds the unique key; if so, the key leads to this one from now on.
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

local function revive(id, record)
  move(id, record, 'revive')
  begin_anew(id, record)
  record[REASON], record[FINISHED_MS] = '', -1
  record[EXPIRES_MS] = -1  -- it would only expire again
  record[CANCEL_REQUESTED] = 0
end

local ids = { unpack(ARGV, 4) }
fetch(ids)
local reply = {}
for number, id in ipairs(ids) do
  local record = load(id)
  if not record then
    reply[number] = 'unknown'
  elseif record[STATE] == 'dead' or record[STATE] == 'cancelled' then
    if take_key(id, record) then
      revive(id, record)
      reply[number] = 'done'
    else
      reply[number] = 'duplicate'
    end
  else
    reply[number] = 'refused'
  end
end
settle()
return reply
