-- Cancel what waits, and ask what runs.
-- ARGV: 1-3 clock, then ids
-- Returns: for each id "cancelled", "requested", "final" or "unknown"
--@include moves

local function cancel(id)
  local record = load(id)
  if not record then
    return 'unknown'
  end
  if record[STATE] == 'running' then
    if record[CANCEL_REQUESTED] == 0 then
      record[CANCEL_REQUESTED] = 1
      write('ZADD', key.asked, 0, record[SESSION] .. '\0' .. id)
      save(id)
    end
    return 'requested'
  end
  if FINAL[record[STATE]] then
    return record[STATE] == 'cancelled' and 'cancelled' or 'final'
  end
  move(id, record, 'cancel')
  return 'cancelled'
end

local ids = { unpack(ARGV, 4) }
fetch(ids)
local reply = {}
for number, id in ipairs(ids) do
  reply[number] = cancel(id)
end
settle()
return reply
