-- Leasing what is next in line.
-- KEYS: body
--@include line

-- Make ready what is due, a bounded number.
local function promote()
  local members = call('ZRANGEBYSCORE', key.due, '-inf', now_ms, 'LIMIT', 0, BITE)
  local ids = {}
  for number, member in ipairs(members) do
    ids[number] = string.sub(member, 8)
  end
  fetch(ids)
  for _, id in ipairs(ids) do
    local record = load(id)
    if record[HOLD] == 'unroutable' then
      offer_again(id, record)
    else
      move(id, record, 'due')
    end
  end
  flush()
end

-- Where a member of `ready` stands: a number for rank and place, and the id.
local function parse(member)
  local stop = string.find(member, '\0', 2, true)
  local rank, place = string.byte(member, stop + 1), struct.unpack('>I7', member, stop + 2)
  return rank * 2 ^ 45 + place, string.sub(member, stop + 9)
end

local function next_of_line(line)
  if line.at > #line.members and #line.members == line.chunk then
    line.offset = line.offset + #line.members
    line.members = range(line.from, line.to, line.offset, line.chunk)
    line.at = 1
  end
  local member = line.members[line.at]
  if member then
    line.standing, line.id = parse(member)
  else
    line.standing = nil
  end
end

-- One line for each queue that has something, by jumping from one to the next.
local function lines_of_all(suspects, limit)
  local lines = {}
  local from, to = bounds(suspects)
  while true do
    local head = range(from, to, 0, 1)[1]
    if not head then
      return lines
    end
    local queue = string.sub(head, 2, string.find(head, '\0', 2, true) - 1)
    local first, last = bounds(suspects, queue)
    local chunk = math.min(limit, 32)
    local members = range(first, last, 0, chunk)
    local line = { from = first, to = last, offset = 0, chunk = chunk, members = members, at = 1 }
    next_of_line(line)
    lines[#lines + 1] = line
    from = last
  end
end

local function merge(suspects, limit)
  local ids, lines = {}, lines_of_all(suspects, limit)
  while #ids < limit do
    local best
    for _, line in ipairs(lines) do
      if line.standing and (not best or line.standing < best.standing) then
        best = line
      end
    end
    if not best then
      break
    end
    ids[#ids + 1] = best.id
    best.at = best.at + 1
    next_of_line(best)
  end
  return ids
end

-- The next ids under a plan, in the order in which they should start.
local function next_in_line(suspects, queues, limit)
  if #queues == 0 then
    return merge(suspects, limit)
  end
  local ids = {}
  for _, queue in ipairs(queues) do
    local from, to = bounds(suspects, queue)
    for _, member in ipairs(range(from, to, 0, limit - #ids)) do
      local _, id = parse(member)
      ids[#ids + 1] = id
    end
    if #ids == limit then
      break
    end
  end
  return ids
end

-- Lease up to `limit` jobs. Those that expired are cancelled on the way and do not count; a bounded
-- number: what was leased, and whether that bound cut it short.
local function lease(session, nonce, suspects, queues, limit)
  local taken, expired, is_done, is_cut_short = {}, 0, false, false
  while #taken < limit and not is_done do
    local ids = next_in_line(suspects, queues, limit - #taken)
    fetch(ids)
    is_done = true
    for _, id in ipairs(ids) do
      local record = load(id)
      if record[EXPIRES_MS] < 0 or record[EXPIRES_MS] > now_ms then
        move(id, record, 'claim', { session = session, nonce = nonce })
        taken[#taken + 1] = id
      elseif expired < BITE then
        move(id, record, 'expire', { reason = 'expired' })
        expired = expired + 1
        is_done = false  -- others may move up
      else
        is_done, is_cut_short = true, true
        break
      end
    end
    flush()
  end
  if #taken > 0 then
    call('ZADD', key.lease, now_ms + lease_ms, session)
    call('HSET', key.sessions, session, '0' .. nonce)
    made_ready = math.max(0, made_ready - #taken)
  end
  return taken, is_cut_short
end

-- {gone, next_in_ms, suspects wait, id, record, body, id, record, body ...}. Under a nonce that is
-- not later than all before nothing new is leased; a negative limit says that it must not be.
local function claim(session, nonce, suspects, queues, limit)
  local _, is_gone, latest = find_session(session)
  if is_gone then
    return { 1, -1, 0 }
  end
  local ids, is_cut_short, in_ms = held_ids(session, nonce, CHUNK), false, next_in_ms()
  if limit < 0 then
    use_up(session, nonce)
  elseif is_before(latest, nonce) and (in_ms == 0 or is_any_ready(suspects, queues)) then
    notice()
    if in_ms == 0 then  -- otherwise nothing is due and nobody is silent
      promote()
      reap()
      if select(2, find_session(session)) then
        return { 1, -1, 0 }
      end
      in_ms = next_in_ms()
    end
    ids, is_cut_short = lease(session, nonce, suspects, queues, limit)
  end
  local reply = { 0, is_cut_short and 0 or in_ms, is_any_ready('1', queues) and 1 or 0 }
  fetch(ids)
  local bodies = read_fields(key.body, ids)
  for number, id in ipairs(ids) do
    reply[#reply + 1] = id
    reply[#reply + 1] = packed[id]
    reply[#reply + 1] = bodies[number]
  end
  return reply
end
