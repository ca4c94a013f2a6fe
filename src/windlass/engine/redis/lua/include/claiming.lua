-- Leasing what is next in line.
-- KEYS: body
--@include line

--@seldom promote
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
--@end

--@seldom merge
-- Whether the next one of a line stands before that of another.
local function is_better(line, other)
  return line.rank < other.rank or line.rank == other.rank and line.place < other.place
end

local function next_of_line(line)
  if line.at > #line.members and #line.members == line.chunk then
    line.offset = line.offset + #line.members
    line.members = range(line.from, line.to, line.offset, line.chunk)
    line.at = 1
  end
  local member = line.members[line.at]
  line.id = member and id_in(member, line.size)
  if member then
    local rank, place = struct.unpack('>I4I7', member, line.size + 3)
    line.rank, line.place = rank - line.age, place
  end
end

local function line_of(suspects, name, limit)
  local from, to = bounds(suspects, name)
  local chunk = math.min(limit, 32)
  local members = range(from, to, 0, chunk)
  local line = { from = from, to = to, offset = 0, chunk = chunk, members = members, at = 1 }
  line.size, line.age = #name, age_now(name)
  next_of_line(line)
  return line
end

-- Over several lines, whoever stands first in any of them.
local function merge(suspects, names, limit)
  local ids, members, lines = {}, {}, {}
  for number, name in ipairs(names) do
    lines[number] = line_of(suspects, name, limit)
  end
  while #ids < limit do
    local best
    for _, line in ipairs(lines) do
      if line.id and (not best or is_better(line, best)) then
        best = line
      end
    end
    if not best then
      break
    end
    ids[#ids + 1] = best.id
    members[#members + 1] = best.members[best.at]
    best.at = best.at + 1
    next_of_line(best)
  end
  return ids, members
end
--@end

local function stretch(suspects, line, offset, number)
  local from, to = bounds(suspects, line)
  local members, ids = range(from, to, offset, number), {}
  for at, member in ipairs(members) do
    ids[at] = id_in(member, #line)
  end
  return ids, members
end

-- Who comes first in a queue, behind so many.
local function front(suspects, queue, offset, number)
  local lines = lines_of(suspects, queue)
  if #lines == 1 then
    return stretch(suspects, queue, offset, number)
  end
  local ids, members = merge(suspects, lines, offset + number)
  return { unpack(ids, offset + 1) }, { unpack(members, offset + 1) }
end

--@seldom add_share
-- Queues that share a tier: first each as many as it has turns, then the rest in their order.
local function add_share(share, queues, first, room, add)
  local asked, taken, left = {}, {}, room
  for turn = 1, math.min(room, #share.turns) do
    local number = string.byte(share.turns, turn)
    asked[number] = (asked[number] or 0) + 1
  end
  for number = 0, share.number - 1 do
    taken[number] = asked[number] and add(queues[first + number], 0, asked[number]) or 0
    left = left - taken[number]
  end
  for number = 0, share.number - 1 do
    if left == 0 then
      return
    end
    left = left - add(queues[first + number], taken[number], left)
  end
end
--@end

-- The next ids under a plan, in the order in which they should start, and their members of `ready`.
local function next_in_line(suspects, queues, limit)
  if #queues == 0 then
    local from, to = bounds(suspects)
    local lines = lines_between(suspects, from, to, is_served)
    if #lines ~= 1 then
      return merge(suspects, lines, limit)
    end
    return stretch(suspects, lines[1], 0, limit)
  end
  local ids, members = {}, {}
  local function add(queue, offset, number)
    local some_ids, some_members = front(suspects, queue, offset, number)
    for at = 1, #some_ids do
      ids[#ids + 1], members[#members + 1] = some_ids[at], some_members[at]
    end
    return #some_ids
  end
  local at = 1
  while at <= #queues and #ids < limit do
    local share = shares[at]
    if share then
      add_share(share, queues, at, limit - #ids, add)
    else
      add(queues[at], 0, limit - #ids)
    end
    at = at + (share and share.number or 1)
  end
  return ids, members
end

-- The move of a claim, on the bytes of the record: what they are now. `sizes` and `tail` are those of
-- the texts that a claim changes.
local function claimed(id, bytes, sizes, tail)
  local attempt, starts, _, has_progress = unpack_numbers(COUNTS, bytes)
  if has_progress == 1 then
    write('HDEL', key.extra, 'p:' .. id)
  end
  local state_size, hold_size, reason_size, session_size, token_size =
    unpack_numbers('>BBBHH', bytes, SIZES_AT + 3)
  local texts = state_size + hold_size + reason_size + session_size + token_size
  return pack_numbers(COUNTS, attempt + 1, starts + 1, now_ms, 0) .. sub(bytes, MARKS_AT, SIZES_AT + 2)
    .. sizes .. sub(bytes, REST_AT, -texts - 1) .. tail
end

-- Lease up to `limit` jobs. Those that expired are cancelled on the way and do not count; a bounded
-- number: what was leased, and whether that bound cut it short.
local function lease(session, nonce, suspects, queues, limit)
  local taken, by_queue, expired, is_done, is_cut_short = {}, {}, 0, false, false
  local prefix, tail = session .. '\0' .. nonce .. '\0', 'runningnone' .. session .. nonce
  local sizes = pack_numbers('>BBBHH', 7, 4, 0, #session, #nonce)
  while #taken < limit and not is_done do
    local ids, members = next_in_line(suspects, queues, limit - #taken)
    fetch(ids)
    is_done = true
    local ready, held = gather('ZREM', key.ready), gather('ZADD', key.held)
    for number, id in ipairs(ids) do
      local bytes = bytes_of(id)
      local expires_ms = unpack_numbers('>i6', bytes, EXPIRES_AT)
      if expires_ms < 0 or expires_ms > now_ms then
        save_bytes(id, claimed(id, bytes, sizes, tail))
        ready[#ready + 1] = members[number]
        local last = #held
        held[last + 1], held[last + 2] = '0', prefix .. id
        local queue = queue_of(bytes)
        by_queue[queue] = (by_queue[queue] or 0) + 1
        taken[#taken + 1] = id
      elseif expired < BITE then
        move(id, load(id), 'expire', { reason = 'expired' })
        expired = expired + 1
        is_done = false  -- others may move up
      else
        is_done, is_cut_short = true, true
        break
      end
    end
    flush()
  end
  for queue, number in pairs(by_queue) do
    count(queue, 'ready', -number)
    count(queue, 'running', number)
    local of_line = suspects .. queue
    made_ready[of_line] = made_ready[of_line] and made_ready[of_line] - number
  end
  if #taken > 0 then
    call('ZADD', key.lease, now_ms + lease_ms, session)
    call('HSET', key.sessions, session, '0' .. nonce)
  end
  return taken, is_cut_short
end

-- How old queues are by now, packed; "" when none ever aged.
local function ages()
  if not has_settings then
    return ''
  end
  local found = {}
  for queue in pairs(settings) do
    found[queue] = age_now(queue)
  end
  return cmsgpack.pack(found)
end

-- {gone, next_in_ms, suspects wait, ages, id, record, body, id, record, body ...}. Under a nonce that is
-- not later than all before nothing new is leased; a negative limit says that it must not be. With
-- `is_last` the nonce is used up even if nothing was found: no later put may lease a job under it.
local function claim(session, nonce, suspects, queues, limit, is_last)
  local _, is_gone, latest = find_session(session)
  if is_gone then
    return { 1, -1, 0, '' }
  end
  local is_new = is_before(latest, nonce)  -- then nothing can be held under it
  local ids, is_cut_short, in_ms = {}, false, next_in_ms()
  if not is_new then
    ids = held_ids(session, nonce, CHUNK)
  end
  if limit < 0 then
    use_up(session, nonce)
  elseif is_new and (in_ms == 0 or is_any_ready(suspects, queues)) then
    notice()
    if in_ms == 0 then  -- otherwise nothing is due and nobody is silent
      promote()
      reap()
      if select(2, find_session(session)) then
        return { 1, -1, 0, '' }
      end
      in_ms = next_in_ms()
    end
    ids, is_cut_short = lease(session, nonce, suspects, queues, limit)
  end
  if is_last and #ids == 0 then
    use_up(session, nonce)
  end
  local reply = { 0, is_cut_short and 0 or in_ms, is_any_ready('1', queues) and 1 or 0, ages() }
  fetch(ids)
  local bodies = read_fields(key.body, ids)
  for number, id in ipairs(ids) do
    reply[#reply + 1] = id
    reply[#reply + 1] = packed[id]
    reply[#reply + 1] = bodies[number]
  end
  return reply
end
