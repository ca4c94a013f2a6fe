-- Part of `wake`: sessions that wait for jobs of some tasks only. They are woken first, because the other
-- sessions can run any job. Where the tasks are not known, their workers look again instead.
if is_due or not ready or ready[false] then
  -- One worker is enough for a job that is due soon: it makes the job ready, and wakes others for it.
  local from, told, is_enough = '[' .. suspects .. '\0\0', {}, is_due and #names > 0
  for _ = 1, MOST_PAGES do
    local found = is_enough and {} or names_from(from, '(' .. suspects .. '\0\1', 0)
    for _, entry in ipairs(found) do
      local channel = string.match(entry, '^..%z.-%z(.-)%z')
      if not is_enough and not told[channel] then
        told[channel] = true
        is_enough = redis.pcall('PUBLISH', channel, RENEW) ~= 0 and is_due
      end
    end
    if #found < MOST_NAMES then
      break
    end
    from = '(' .. found[#found]
  end
else
  local counts, sum, woken = ready, 0, 0
  if type(ready) == 'string' then
    local queue_size, size = struct.unpack('>HH', ready, 2)
    counts = { [sub(ready, 6 + queue_size, 5 + queue_size + size)] = number }
  end
  for name, count in pairs(counts) do
    sum = sum + count
    woken = woken + wake(suspects, line, math.min(count, number), nil, nil, name)
  end
  -- Otherwise this call has claimed some of them, and nothing shows which.
  if sum == number then
    number = number - woken
  end
end
