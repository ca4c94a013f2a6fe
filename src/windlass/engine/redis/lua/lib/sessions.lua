-- Sessions: find the live and dead sessions and their jobs, and take back the jobs of expired sessions.
-- KEYS: lease forget
--@include moves
--@include nonces

-- The ids that a session holds, up to a limit; with a nonce, only those under it.
local function held_ids(session, nonce, limit)
  local prefix = session .. '\0'
  if nonce then
    prefix = prefix .. nonce .. '\0'
  end
  local last = string.sub(prefix, 1, -2) .. '\1'
  local members = call('ZRANGEBYLEX', key.held, '[' .. prefix, '(' .. last, 'LIMIT', 0, limit)
  local ids = {}
  for number, member in ipairs(members) do
    local from = #prefix + 1
    if not nonce then
      from = (string.find(member, '\0', from, true) or #member) + 1
    end
    ids[number] = string.sub(member, from)
  end
  return ids, members
end

-- The same, and drop entries of jobs that are not held; also return the number of entries.
local function sound_ids(session, nonce, limit)
  local ids, members = held_ids(session, nonce, limit)
  local sound = {}
  fetch(ids)
  for number, id in ipairs(ids) do
    local record = load(id)
    if record and record[STATE] == 'running' and members[number] == member_of('held', id, record) then
      sound[#sound + 1] = id
    else
      drop(key.held, members[number])
    end
  end
  return sound, #ids
end

-- A session whose lease ran out, or a dead one that still holds jobs; nil when there is none among the
-- first of them.
local function first_silent()
  for _ = 1, BITE do
    local session = call('ZRANGEBYSCORE', key.lease, '-inf', now_ms, 'LIMIT', 0, 1)[1]
    if not session then
      return nil
    end
    local _, is_gone = find_session(session)
    if not is_gone or #held_ids(session, nil, 1) > 0 then
      return session
    end
    call('ZREM', key.lease, session)
  end
end

local function may_reap()
  return now_ms >= reap_after_ms and first_silent() ~= nil
end

-- A claim under this nonce that arrives later must find nothing, even if its session was unknown.
local function use_up(session, nonce)
  local is_known, is_gone, latest = find_session(session)
  if is_before(latest, nonce) then
    call('HSET', key.sessions, session, (is_gone and '1' or '0') .. nonce)
  end
  if not is_known then
    call('ZADD', key.lease, now_ms + lease_ms, session)
  end
end

-- Declare a session dead. While it may hold jobs it stays in `lease`, as one whose lease ran out. A lost
-- session is counted once, in the partition that stores its info.
local function end_session(session, may_hold_jobs, is_lost)
  local _, _, nonce = find_session(session)
  call('HSET', key.sessions, session, '1' .. nonce)
  local described = call('HDEL', key.sessions, session .. '\0')
  call('HDEL', key.sessions, session .. '\0command')
  if is_lost and described == 1 then
    total('sessions_lost')
  end
  call('ZADD', key.forget, now_ms + GONE_SESSION_MS, session)
  if may_hold_jobs then
    call('ZADD', key.lease, -1, session)
  else
    call('ZREM', key.lease, session)
  end
end

-- Take back the jobs of expired sessions, a bounded number; return how many, and whether there may be
-- more. The first batch declares a session dead in the same step, so that it cannot be revived.
local function reap()
  local reaped, seen = 0, 0
  if now_ms < reap_after_ms then
    return reaped, false
  end
  for _ = 1, BITE do
    local session = first_silent()
    if not session then
      return reaped, false
    end
    local left = BITE - seen
    local ids, number = sound_ids(session, nil, left)
    end_session(session, number == left, true)
    for _, id in ipairs(ids) do
      move(id, load(id), 'lose', { cause = '' })
    end
    flush()
    reaped, seen = reaped + #ids, seen + number
    if seen == BITE then
      return reaped, true
    end
  end
  return reaped, true
end

-- After the clock was set back: no lease may reach further than the longest one.
local function clamp_leases(longest_ms)
  local last = now_ms + longest_ms
  local range = { '(' .. string.format('%.0f', last), '(+inf', 'LIMIT', 0, CHUNK }
  while true do
    local found = call('ZRANGEBYSCORE', key.lease, unpack(range))
    for _, session in ipairs(found) do
      call('ZADD', key.lease, last, session)
    end
    if #found < CHUNK then
      return
    end
  end
end

-- Note the caller's lease, and return the longest one, as windlass.core.longest_lease defines: `at_ms`
-- is now or, after a silence of all workers, its beginning.
local function note_lease(at_ms, is_silence)
  local longest, until_ms, next_ms = string.match(leases, '^(%d+) (%d+) (%d+)$')
  longest, until_ms, next_ms = tonumber(longest), tonumber(until_ms), tonumber(next_ms)
  if not is_silence and longest == lease_ms and until_ms - now_ms > lease_ms + math.floor(lease_ms / 2) then
    return longest  -- in most calls
  end
  if until_ms <= at_ms then
    longest, until_ms, next_ms = next_ms, at_ms + 2 * next_ms, 0
  end
  if is_silence then
    until_ms = now_ms + 2 * longest
  end
  if lease_ms < longest then
    next_ms = math.max(next_ms, lease_ms)
  elseif lease_ms > longest or until_ms - now_ms <= lease_ms + math.floor(lease_ms / 2) then
    longest, until_ms, next_ms = lease_ms, now_ms + 2 * lease_ms, 0
  end
  leases = string.format('%.0f %.0f %.0f', longest, until_ms, next_ms)
  return longest
end

-- A worker calls. After a silence of all workers, give all of them time for a heartbeat: then the server
-- was down, and not the workers.
local function notice()
  local last_ms = last_seen_ms
  last_seen_ms = now_ms
  if last_ms < 0 or now_ms >= last_ms and now_ms - last_ms <= math.floor(lease_ms / 2) then
    note_lease(now_ms, false)
    return
  end
  local longest_ms = note_lease(last_ms, true)
  reap_after_ms = now_ms + math.floor(longest_ms / 2)
  if now_ms < last_ms then
    clamp_leases(longest_ms)
  end
end
