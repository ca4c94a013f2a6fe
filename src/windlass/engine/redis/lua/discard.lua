-- Remove dead or cancelled jobs, and free their idempotency keys: else their callers would be sent to
-- jobs that are no more.
-- ARGV: 1-3 clock, then ids
-- Returns: for each id "done", "refused" or "unknown"
--@include removing

local ids = { unpack(ARGV, 4) }
fetch(ids)
local reply = {}
for number, id in ipairs(ids) do
  local record = load(id)
  if not record then
    reply[number] = 'unknown'
  elseif record[STATE] == 'dead' or record[STATE] == 'cancelled' then
    free_key(id)
    remove(id, record)
    reply[number] = 'done'
  else
    reply[number] = 'refused'
  end
end
settle()
return reply
