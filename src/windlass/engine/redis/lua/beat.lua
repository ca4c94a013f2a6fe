-- Record heartbeats, and release claims under nonces that the child does not know: the reply was lost, so
-- no child will ever finish them.
-- ARGV: 1-3 clock, then for each heartbeat: session, newest, info ('' = nothing),
--       number of nonces (-1 = none were listed), nonces
-- Returns: for each heartbeat {alive, ids whose cancellation was requested}
--@include sessions

local function give_back_unknown(session, newest, known)
  local prefix = session .. '\0'
  local from, to = '[' .. prefix, '(' .. session .. '\1'
  while true do
    local members = call('ZRANGEBYLEX', key.held, from, to, 'LIMIT', 0, CHUNK)
    local ids, held = {}, {}
    for _, member in ipairs(members) do
      local stop = string.find(member, '\0', #prefix + 1, true) or #member + 1
      local nonce = string.sub(member, #prefix + 1, stop - 1)
      if not known[nonce] and not is_before(newest, nonce) then
        ids[#ids + 1] = string.sub(member, stop + 1)
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

local function cancel_requests(session)
  local prefix = session .. '\0'
  local found = call('ZRANGEBYLEX', key.asked, '[' .. prefix, '(' .. session .. '\1', 'LIMIT', 0, CHUNK)
  local reply = { 1 }
  for _, member in ipairs(found) do
    local id = string.sub(member, #prefix + 1)
    local record = load(id)
    if record and record[STATE] == 'running' and record[SESSION] == session then
      reply[#reply + 1] = id
    else
      drop(key.asked, member)
    end
  end
  return reply
end

local function introduce(session, info, is_known)
  if not is_known then
    call('HSET', key.sessions, session, '0')
    call('ZADD', key.lease, now_ms + lease_ms, session)
  end
  call('HSET', key.sessions, session .. '\0', info)
end

local function beat(session, newest, info, known)
  local is_known, is_gone = find_session(session)
  if is_gone then
    return { 0 }
  elseif info ~= '' then
    introduce(session, info, is_known)
  elseif not is_known then
    return { 1 }
  end
  call('ZADD', key.lease, 'XX', now_ms + lease_ms, session)
  if known then
    give_back_unknown(session, newest, known)
  end
  return cancel_requests(session)
end

notice()
local reply, at = {}, 4
while at <= #ARGV do
  local number, known = tonumber(ARGV[at + 3]), nil
  if number >= 0 then
    known = {}
    for nonce = at + 4, at + 3 + number do
      known[ARGV[nonce]] = true
    end
  end
  reply[#reply + 1] = beat(ARGV[at], ARGV[at + 1], ARGV[at + 2], known)
  at = at + 4 + math.max(number, 0)
end
settle()
return reply
