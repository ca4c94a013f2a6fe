-- Handing over: a new job is leased for somebody who waits, and told to it, in the call that stores it.
-- Nobody asks for the claim, so it must be one that the waiter would have got: it waits under a nonce that
-- was not used, and nobody stands in line before the job. Whoever does not listen at this server gets
-- nothing: what PUBLISH counts are also those who listen to everything, and it reaches those who listen
-- to a replica, which it does not count.
-- KEYS: ready held
--@include bookkeeping
--@include nonces
local is_single = false  -- whether the call stores one job only
local taker              -- who gets it, and what is needed to take it back
local first_waiters      -- those who wait the longest

local function somebody_waits()
  first_waiters = waiters(0, MOST_ALONE)
  nobody_waits = #first_waiters == 0
  return not nobody_waits
end

--@seldom find_taker hand hand_over
local function serves(queues, queue)
  for _, name in ipairs(queues) do
    if name == queue then
      return true
    end
  end
  return #queues == 0
end

local function listens(channel)
  local found = redis.pcall('PUBSUB', 'NUMSUB', channel)
  return (tonumber(found[2]) or 0) > 0
end

-- Some of those that are counted as ready stand in no line: suspects, and jobs that nobody here can run.
local function is_anybody_in(queue)
  local from, to = '[0' .. queue .. '\0', '(0' .. queue .. '\1'
  return call('ZRANGEBYLEX', key.ready, from, to, 'LIMIT', 0, 1)[1] ~= nil
end

-- Whether somebody may have a job that is ready; then it is `taker`.
local function find_taker(queue, ends_ms)
  if string.find(queue, '+', 1, true) or has_settings and settings[queue]
      or ends_ms >= 0 and ends_ms <= now_ms then
    return false
  end
  for _, waiter in ipairs(first_waiters) do
    local channel, runs_alone, session, nonce, queues = read_waiter(waiter)
    if type(queues) == 'table' and not runs_alone and serves(queues, queue) then
      local is_known, is_gone, latest = find_session(session)
      if is_known and not is_gone and is_before(latest, nonce) and listens(channel) then
        taker = { waiter = waiter, channel = channel, session = session, nonce = nonce, latest = latest }
        break
      end
    end
  end
  if not taker then
    return false
  end
  local ready, running = unpack(call('HMGET', key.count, queue .. '\0ready', queue .. '\0running'))
  if ready and is_anybody_in(queue) then
    taker = nil
    return false
  end
  taker.running = tonumber(running or 0)
  return true
end

-- Gather what a claim writes besides the record.
local function hand(id, queue, member, bytes, body)
  taker.id, taker.queue, taker.member, taker.bytes, taker.body = id, queue, member, bytes, body
  write('ZADD', key.held, '0', taker.session .. '\0' .. taker.nonce .. '\0' .. id)
  write('HSET', key.sessions, taker.session, '0' .. taker.nonce)
  write('HSET', key.count, queue .. '\0running', taker.running + 1)
end

-- Nobody could be told: the job is ready, as if it had never been leased.
local function take_back()
  local bytes = taker.bytes
  local texts = #'running' + #'none' + #taker.session + #taker.nonce
  call('HSET', key.job, taker.id, pack_numbers(COUNTS, 0, 0, -1, 0) .. sub(bytes, MARKS_AT, SIZES_AT + 2)
    .. pack_numbers('>BBBHH', #'ready', #'none', 0, 0, 0) .. sub(bytes, REST_AT, -texts - 1) .. 'readynone')
  call('ZREM', key.held, taker.session .. '\0' .. taker.nonce .. '\0' .. taker.id)
  call('HSET', key.sessions, taker.session, '0' .. taker.latest)
  call('ZADD', key.ready, '0', taker.member)
  add(key.count, taker.queue .. '\0running', -1)
  add(key.count, taker.queue .. '\0ready', 1)
  ring(1)
end

-- Last, when all is written: whatever is told is then true.
local function hand_over()
  call('ZREM', key.wait, taker.waiter)
  local message = struct.pack('>HH', #taker.id, #taker.bytes) .. taker.id .. taker.bytes .. taker.body
  local told = redis.pcall('PUBLISH', taker.channel, message)
  if type(told) ~= 'number' then
    take_back()
  end
end
--@end
