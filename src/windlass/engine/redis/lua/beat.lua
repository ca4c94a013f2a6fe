-- Record heartbeats, and release claims that the worker does not know: the reply was lost, so it will never
-- finish them. A worker lists its nonces, or the jobs that it has.
-- ARGV: 1-3 clock, then for each heartbeat: session, newest, info ('' = nothing),
--       number of nonces (-1 = none were listed), nonces,
--       number of jobs in this partition (-1 = none were listed), ids
-- Returns: for each heartbeat {alive, command ('' = none), {ids whose cancellation was requested},
--          {listed ids that the session does not hold}}; only {0} for a dead session
--@include sessions

-- Release old claims of a session, except those for which `is_known` says so by nonce and id.
local function give_back(session, is_known)
  local prefix = session .. '\0'
  local from, to = '[' .. prefix, '(' .. session .. '\1'
  while true do
    local members = call('ZRANGEBYLEX', key.held, from, to, 'LIMIT', 0, CHUNK)
    local ids, held = {}, {}
    for _, member in ipairs(members) do
      local stop = string.find(member, '\0', #prefix + 1, true) or #member + 1
      local nonce, id = string.sub(member, #prefix + 1, stop - 1), string.sub(member, stop + 1)
      if not is_known(nonce, id) then
        ids[#ids + 1] = id
        held[#held + 1] = member
      end
    end
    fetch(ids)
    for number, id in ipairs(ids) do
      local record = load(id)
      local age_ms = record and now_ms - record[STARTED_MS]
      if not record or record[STATE] ~= 'running' or held[number] ~= member_of('held', id, record) then
        drop(key.held, held[number])
      elseif age_ms >= UNKNOWN_NONCE_MS or age_ms < 0 then  -- in the future: the clock was set back
        move(id, record, 'release', { unstarted = true })
      end
    end
    if #members < CHUNK then
      break
    end
    from = '(' .. members[#members]
  end
  flush()
end

-- Release old claims under nonces that are not listed, up to the newest one.
local function compare_nonces(session, newest, nonces)
  local known = {}
  for _, nonce in ipairs(nonces) do
    known[nonce] = true
  end
  give_back(session, function(nonce)
    return known[nonce] or is_before(newest, nonce)
  end)
end

-- Release old claims of jobs that are not listed, up to the newest nonce. Return the listed jobs that the
-- session does not hold.
local function compare_jobs(session, newest, listed)
  local known, held, lost = {}, {}, {}
  for _, id in ipairs(listed) do
    known[id] = true
  end
  give_back(session, function(nonce, id)
    held[id] = known[id]
    return known[id] or is_before(newest, nonce)
  end)
  for _, id in ipairs(listed) do
    if not held[id] then
      lost[#lost + 1] = id
    end
  end
  return lost
end

local function cancel_requests(session)
  local prefix = session .. '\0'
  local found = call('ZRANGEBYLEX', key.asked, '[' .. prefix, '(' .. session .. '\1', 'LIMIT', 0, CHUNK)
  local ids = {}
  for _, member in ipairs(found) do
    local id = string.sub(member, #prefix + 1)
    local record = load(id)
    if record and record[STATE] == 'running' and record[SESSION] == session then
      ids[#ids + 1] = id
    else
      drop(key.asked, member)
    end
  end
  return ids
end

local function introduce(session, info, is_known)
  if not is_known then
    call('HSET', key.sessions, session, '0')
    call('ZADD', key.lease, now_ms + lease_ms, session)
  end
  call('HSET', key.sessions, session .. '\0', info)
end

local function beat(session, newest, info, nonces, listed)
  local is_known, is_gone = find_session(session)
  if is_gone then
    return { 0 }
  elseif info ~= '' then
    introduce(session, info, is_known)
  elseif not is_known then
    return { 1, '', {}, listed or {} }
  end
  call('ZADD', key.lease, 'XX', now_ms + lease_ms, session)
  if nonces then
    compare_nonces(session, newest, nonces)
  end
  local lost = listed and compare_jobs(session, newest, listed) or {}
  return { 1, call('HGET', key.sessions, session .. '\0command') or '', cancel_requests(session), lost }
end

-- The list at a place of the arguments, after its length; nil when none was given. Also the place behind it.
local function read_list(at)
  local number = tonumber(ARGV[at])
  if number < 0 then
    return nil, at + 1
  end
  local list = {}
  for each = at + 1, at + number do
    list[#list + 1] = ARGV[each]
  end
  return list, at + 1 + number
end

notice()
local reply, at = {}, 4
while at <= #ARGV do
  local session, newest, info = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local nonces, behind = read_list(at + 3)
  local listed
  listed, at = read_list(behind)
  reply[#reply + 1] = beat(session, newest, info, nonces, listed)
end
settle()
return reply
