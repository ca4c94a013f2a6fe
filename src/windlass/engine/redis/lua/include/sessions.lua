-- Sessions: who lives, who is dead, what each holds, and taking back what the silent ones held.
-- KEYS: lease forget
--@include moves
--@include nonces

-- The ids that a session holds, at most so many; with a nonce, those under it alone.
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

-- The same, without entries of jobs that are not held, which are dropped; and how many entries there
-- were.
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

-- A session whose lease ran out, or a dead one that still holds jobs; nil when there is none among
-- the first of them.
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

--@seldom use_up end_session reap clamp_leases
-- A claim under this nonce that is still on its way must find nothing, even where nothing was known
-- of its session.
local function use_up(session, nonce)
  local is_known, is_gone, latest = find_session(session)
  if is_before(latest, nonce) then
    call('HSET', key.sessions, session, (is_gone and '1' or '0') .. nonce)
  end
  if not is_known then
    call('ZADD', key.lease, now_ms + lease_ms, session)
  end
end

-- Dead for good. While it may hold jobs it stays in `lease`, as one whose lease ran out.
local function end_session(session, may_hold_jobs)
  local _, _, nonce = find_session(session)
  call('HSET', key.sessions, session, '1' .. nonce)
  call('HDEL', key.sessions, session .. '\0')
  call('ZADD', key.forget, now_ms + GONE_SESSION_MS, session)
  if may_hold_jobs then
    call('ZADD', key.lease, -1, session)
  else
    call('ZREM', key.lease, session)
  end
end

-- Take back the jobs of silent sessions, a bounded number; how many, and whether there may be more.
-- The first bite declares a session dead in the same step, so that it cannot be revived.
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
    end_session(session, number == left)
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

-- After the clock went back: no lease may reach further than a whole one.
local function clamp_leases()
  local last = now_ms + lease_ms
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
--@end

-- Somebody is there. After a silence of all, everybody is given time to beat again: then the
-- server was away, and not the workers.
local function notice()
  if last_seen_ms >= 0 then
    if now_ms < last_seen_ms then
      clamp_leases()
    end
    local half_ms = math.floor(lease_ms / 2)
    if now_ms < last_seen_ms or now_ms - last_seen_ms > half_ms then
      reap_after_ms = now_ms + half_ms
    end
  end
  last_seen_ms = now_ms
end
