-- Handing over: a new job is leased for somebody who waits, and told to it, in the call that stores it.
-- Nobody asks for the claim, so it must be one that the waiter would have got: it waits under a nonce that
-- was not used, and nobody stands in line before the job. Whoever does not listen at this server gets
-- nothing: what PUBLISH counts are also those who listen to everything, and it reaches those who listen
-- to a replica, which it does not count.
-- KEYS: job body ids ready held sessions count wait
--@include heads
--@include meta
--@include nonces
--@include waiters
local may_hand_over = #ARGV == 5  -- one job alone

local function serves(queues, queue)
  for _, name in ipairs(queues) do
    if name == queue then
      return true
    end
  end
  return #queues == 0
end

-- Who has waited the longest of those who may have a job of a queue: waiter, channel, session, nonce.
local function find_taker(queue)
  local found = waiters(0, MOST_ALONE)
  nobody_waits = #found == 0
  for _, waiter in ipairs(found) do
    local channel, runs_alone, session, nonce, queues = read_waiter(waiter)
    if type(queues) == 'table' and not runs_alone and serves(queues, queue) then
      local is_known, is_gone, latest = find_session(session)
      if is_known and not is_gone and is_before(latest, nonce)
          and (tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel)[2]) or 0) > 0 then
        return waiter, channel, session, nonce
      end
    end
  end
end

-- Some of those that are counted as ready stand in no line: suspects, and jobs that nobody here can run.
local function is_anybody_in(queue)
  local from, to = '[0' .. queue .. '\0', '(0' .. queue .. '\1'
  return call('ZRANGEBYLEX', key.ready, from, to, 'LIMIT', 0, 1)[1] ~= nil
end

-- Store a job and have somebody run it; whether that was possible, or it was stored before. It is told
-- last, when all is written and so true. If that fails, the claim is made in the usual way: it finds what
-- is held under its nonce.
local function hand_over(head, body, unique)
  local id, queue, ends_ms = head[1], head[3], expires_ms(head)
  if due_ms_of(head) > now_ms or ends_ms >= 0 and ends_ms <= now_ms
      or recounted or settings[queue] or string.find(queue, '+', 1, true) then
    return false
  end
  local waiter, channel, session, nonce = find_taker(queue)
  if not waiter then
    return false
  end
  local ready, running = unpack(call('HMGET', key.count, queue .. '\0ready', queue .. '\0running'))
  if ready and is_anybody_in(queue) then
    return false
  end
  local number = sequence + 1
  local bytes = new_record(head, number, 0, unique, 1, 'running', session, nonce)
  if call('HSETNX', key.job, id, bytes) == 0 then
    return true
  end
  call('HSET', key.body, id, body)
  call('ZADD', key.ids, '0', id)
  call('ZADD', key.held, '0', session .. '\0' .. nonce .. '\0' .. id)
  call('HSET', key.sessions, session, '0' .. nonce)
  call('HSET', key.count, queue .. '\0running', (running or 0) + 1)
  call('HSET', key.meta, 'sequence', text_of(number), 'enqueued', text_of(stored_enqueued + 1))
  call('ZREM', key.wait, waiter)
  redis.pcall('PUBLISH', channel, struct.pack('>HH', #id, #bytes) .. id .. bytes .. body)
  sequence, stored_sequence = number, number
  return true
end
