-- Remove dead or cancelled jobs, and free their idempotency keys: otherwise the keys would point to
-- removed jobs.
-- ARGV: 1-3 clock, then for each job its id, and when it ended (-1 = at any time)
-- Returns: for each job "done", "refused" or "unknown"
--@include removal

local ids = {}
for at = 4, #ARGV, 2 do
  ids[#ids + 1] = ARGV[at]
end
fetch(ids)

local function has_ended(record, seen_ms)
  return (record[STATE] == 'dead' or record[STATE] == 'cancelled')
    and (seen_ms < 0 or seen_ms == record[FINISHED_MS])
end

local reply = {}
for number, id in ipairs(ids) do
  local record = load(id)
  if not record then
    reply[number] = 'unknown'
  elseif has_ended(record, tonumber(ARGV[2 * number + 3])) then
    free_key(id)
    remove(id, record)
    reply[number] = 'done'
  else
    reply[number] = 'refused'
  end
end
settle()
return reply
