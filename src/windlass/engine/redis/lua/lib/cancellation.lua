-- Cancel a waiting job, or request the cancellation of a running job.
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
