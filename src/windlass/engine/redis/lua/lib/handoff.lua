-- Hand-off: the call that stores a job also leases it to an idle session, and publishes it to the session's
-- worker. The session did not ask for this claim, so the claim must equal the session's own next claim:
-- the session waits under an unused nonce, and no other job comes before this job. A worker that does not
-- listen at this server gets no hand-off. PUBLISH also counts clients that listen to everything, and it
-- reaches clients of a replica without counting them.
-- KEYS: job body ready due held sessions count idle waiters
--@include first_run
--@include meta
--@include nonces
--@include enqueue_counters
--@include waiters
local MOST_HANDED = 16384  -- bytes of a body: a larger job is claimed in the usual way
local MOST_LINES = 8  -- at most this many lines that the worker does not serve are skipped

local function first_between(from, to)
  return call('ZRANGEBYLEX', key.ready, from, to, 'LIMIT', 0, 1)[1]
end

-- Whether this waiter could claim a job of a line.
local function may_claim_from(waiter, line)
  local plus = string.find(line, '+', 1, true)
  local own = settings[plus and sub(line, 1, plus - 1) or line]
  return not (own and own[QUEUE_PAUSED]) and serves(waiter, line)
end

-- Whether this waiter could claim a job of any line between two bounds.
local function has_any(waiter, from, to)
  for _ = 1, MOST_LINES do
    local head = first_between(from, to)
    if not head then
      return false
    end
    local line = sub(head, 2, (string.find(head, '\0', 2, true) or #head + 1) - 1)
    if may_claim_from(waiter, line) then
      return true
    end
    from = '(0' .. line .. '\1'
  end
  return true
end

-- Whether a claim of this waiter would find nothing else.
local function finds_nothing(waiter)
  local due = call('ZRANGE', key.due, 0, 0, 'WITHSCORES')
  if due[1] and due[1] ~= '' and tonumber(due[2]) <= now_ms then
    return false
  elseif not first_between('[0', '(1') then
    return true
  elseif #waiter[WAITS_IN] == 0 then
    return not has_any(waiter, '[0', '(1')
  end
  for _, queue in ipairs(waiter[WAITS_IN]) do
    if has_any(waiter, '[0' .. queue .. '\0', '(0' .. queue .. '\1')
        or #waiter[WAITS_WITH] > 0 and has_any(waiter, '[0' .. queue .. '+', '(0' .. queue .. ',') then
      return false
    end
  end
  return true
end

-- A session that may get a job of a queue: its registration, which is one of these, and its position
-- there.
local function find_taker(names, queue)
  local first = #names > 1 and time[2] % #names or 0
  for number = 1, #names do
    local name = names[(first + number - 1) % #names + 1]
    local waiter = read_waiter(name)
    if waiter and waiter[WAITS_FOR] and not serves(waiter, queue) then
      waiter = nil
    end
    for at = 1, waiter and #waiter[WAITING] or 0, 2 do
      local session, nonce = waiter[WAITING][at], waiter[WAITING][at + 1]
      if nonce ~= '' then
        local is_known, is_gone, latest = find_session(session)
        if is_known and not is_gone and is_before(latest, nonce) then
          if (tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel_of(name))[2]) or 0) > 0 then
            return name, waiter, at
          end
          break
        end
      end
    end
  end
end

-- Store a job and lease it to an idle session of one of these registrations; return whether that worked,
-- or the job was stored before. `make_bytes` makes the record of the new job from its row; a call that is
-- stored apart is `body`. The worker is notified last, after all writes. If the message is lost, the usual
-- claim finds the job under its nonce.
local function hand_to_one(names, id, queue, task, make_bytes, body)
  local name, waiter, at = find_taker(names, queue)
  if not name or not finds_nothing(waiter) then
    return false
  end
  local session, nonce = waiter[WAITING][at], waiter[WAITING][at + 1]
  local running = call('HGET', key.count, queue .. '\0running')
  local number = sequence + 1
  local bytes = make_bytes(number)
  bytes = run_flags(bytes) .. sub(bytes, 3) .. first_run(session, nonce)
  if call('HSETNX', key.job, id, bytes) == 0 then
    return true
  end
  if body then
    call('HSET', key.body, id, body)
  end
  call('ZADD', key.held, '0', session .. '\0' .. nonce .. '\0' .. id)
  call('HSET', key.sessions, session, '0' .. nonce)
  call('HSET', key.count, queue .. '\0running', (running or 0) + 1)
  if stored[7] then
    call('HSET', key.meta, 'sequence', text_of(number), first_counter, text_of(stored[7] + 1))
  else
    call('HSET', key.meta, 'sequence', text_of(number))
    count_enqueued('e:' .. queue .. '\0' .. task, 1)
  end
  table.remove(waiter[WAITING], at)
  table.remove(waiter[WAITING], at)
  keep_waiter(name, waiter)
  redis.pcall('PUBLISH', channel_of(name),
    '!' .. struct.pack('>HHHH', #session, #nonce, #id, #bytes) .. session .. nonce .. id .. bytes .. (body or ''))
  sequence, stored_sequence = number, number
  return true
end

-- The same, unless the job may not be handed off.
local function hand_over(id, queue, task, size, make_bytes, body)
  if recounted or settings[queue] or is_task_paused(task) or string.find(queue, '+', 1, true) or size > MOST_HANDED then
    return false
  end
  local names, by_task = waiting_for('0', queue, 0), {}
  if are_some_by_task then
    by_task = waiting_for('0', queue, 0, task)
  end
  has_no_waiters = #names == 0 and #by_task == 0
  return #by_task > 0 and hand_to_one(by_task, id, queue, task, make_bytes, body)
    or #names > 0 and hand_to_one(names, id, queue, task, make_bytes, body)
end
