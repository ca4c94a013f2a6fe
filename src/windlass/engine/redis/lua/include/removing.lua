-- Taking a job out for good.
-- KEYS: body ids
--@include moves
local function remove(id, record)
  leave(id, record)
  write('HDEL', key.job, id)
  write('HDEL', key.body, id)
  write('ZREM', key.ids, id)
  write('HDEL', key.extra, 'r:' .. id, 'p:' .. id)
  write('HDEL', key.extra, 'k:' .. id)
  for number = 0, math.min(record[FAILURES], MAX_FAILURES) - 1 do
    write('HDEL', key.extra, 'f:' .. number .. ':' .. id)
  end
  count(record[QUEUE], record[STATE], -1)
  records[id], packed[id], changed[id] = false, false, nil
end
