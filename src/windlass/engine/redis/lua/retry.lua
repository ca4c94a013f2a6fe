-- Make dead or cancelled jobs ready again, with fresh budgets.
-- ARGV: 1-3 clock, then ids
-- Returns: for each id "done", "refused" or "unknown"
--@include moves

local function revive(id, record)
  move(id, record, 'revive')
  for _, field in ipairs({ ATTEMPT, STARTS, CRASHES, LOSSES, INTERRUPTIONS, SNOOZES, STRAYS }) do
    record[field] = 0
  end
  record[REASON], record[FINISHED_MS] = '', -1
  record[EXPIRES_MS] = -1  -- it would only expire again
  record[CANCEL_REQUESTED] = 0
  if record[HAS_PROGRESS] == 1 then
    record[HAS_PROGRESS] = 0
    write('HDEL', key.extra, 'p:' .. id)
  end
end

local ids = { unpack(ARGV, 4) }
fetch(ids)
local reply = {}
for number, id in ipairs(ids) do
  local record = load(id)
  if not record then
    reply[number] = 'unknown'
  elseif record[STATE] == 'dead' or record[STATE] == 'cancelled' then
    revive(id, record)
    reply[number] = 'done'
  else
    reply[number] = 'refused'
  end
end
settle()
return reply
