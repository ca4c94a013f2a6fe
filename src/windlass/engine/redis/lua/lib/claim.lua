-- Lease the next jobs in line. For a plan with tasks, `task_filter` replaces some of these functions.
-- KEYS: body
--@include line
--@include first_run
local filter_tasks, find_wanted  -- set by `task_filter`

-- Make due jobs ready, a bounded number.
local function promote()
  local members = call('ZRANGEBYSCORE', key.due, '-inf', now_ms, 'LIMIT', 0, BITE)
  local ids = {}
  for number, member in ipairs(members) do
    ids[number] = string.sub(member, 8)
  end
  fetch(ids)
  for number, id in ipairs(ids) do
    local record = load(id)
    local is_waiting = record and record[DUE_MS] >= 0
    if not is_waiting or members[number] ~= member_of('due', id, record) then
      drop(key.due, members[number])
    elseif record[DUE_MS] > now_ms then
      write('ZADD', key.due, text_of(record[DUE_MS]), members[number])
      total('orphans')
    elseif record[HOLD] ~= 'none' then
      offer_again(id, record)
    else
      move(id, record, 'due')
    end
  end
  flush()
end

-- Whether the next job of a line comes before that of another.
local function is_better(line, other)
  return line.rank < other.rank or line.rank == other.rank and line.place < other.place
end

-- A heap: no element is better than the first.
local function push(heap, line)
  local at = #heap + 1
  while at > 1 do
    local above = math.floor(at / 2)
    if not is_better(line, heap[above]) then
      break
    end
    heap[at] = heap[above]
    at = above
  end
  heap[at] = line
end

-- Replace the first element, or only remove it.
local function replace_first(heap, line)
  if not line then
    line = table.remove(heap)
    if #heap == 0 then
      return
    end
  end
  local at, last = 1, #heap
  while 2 * at <= last do
    local below = 2 * at
    if below < last and is_better(heap[below + 1], heap[below]) then
      below = below + 1
    end
    if not is_better(heap[below], line) then
      break
    end
    heap[at] = heap[below]
    at = below
  end
  heap[at] = line
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
    local rank, place = 0, 0
    if #member >= line.size + 13 then
      rank, place = struct.unpack('>I4I7', member, line.size + 3)
    end
    line.rank, line.place = rank - line.age, place
  end
end

local function line_of(suspects, name, limit)
  local from, to = bounds(suspects, name)
  local chunk = math.min(limit, 32)
  local members = range(from, to, 0, chunk)
  local line = { from = from, to = to, offset = 0, chunk = chunk, members = members, at = 1 }
  line.size, line.age = #name, age_now(name)
  touched[suspects .. name] = members[1] or false
  next_of_line(line)
  return line
end

-- The next line of a group, from its entry; its jobs are not read yet.
local function next_of_group(group, limit)
  group.at = group.at + 1
  if group.at > #group.entries and #group.entries == group.chunk then
    local last = group.entries[#group.entries]
    local from = last and '(' .. last or '[' .. group.prefix
    group.chunk = math.min(limit, CHUNK)
    group.entries, group.at = entries_between(from, group.to, group.chunk), 1
  end
  group.entry = group.entries[group.at]
  if group.entry then
    local rank, place = struct.unpack('>I5I7', group.entry, #group.prefix + 1)
    group.rank, group.place = rank - RANK_BIAS - group.age, place
  end
  return group.entry and group
end

-- Read the line of an entry; nil if it was already read. An entry that does not match the line is
-- corrected.
local function line_of_entry(suspects, group, seen, limit)
  local entry = group.entry
  local name = sub(entry, #group.prefix + 13) .. group.labels
  if seen[name] then
    write('ZREM', key.lines, entry)
    return nil
  end
  seen[name] = true
  local line = line_of(suspects, name, limit)
  local right = line.id and entry_of(suspects .. name, line.members[1])
  if right ~= entry then
    write('ZREM', key.lines, entry)
    total('orphans')
    if right then
      write('ZADD', key.lines, '0', right)
    end
  end
  return right and line
end

-- Take the best jobs of the lines of a heap. Lines of groups are read when they come first.
local function take_best(suspects, heap, seen, limit)
  local ids, members = {}, {}
  while #ids < limit and #heap > 0 do
    local best = heap[1]
    if best.prefix then
      local line = line_of_entry(suspects, best, seen, limit - #ids)
      replace_first(heap, next_of_group(best, limit - #ids))
      if line then
        push(heap, line)
      end
    else
      ids[#ids + 1] = best.id
      members[#members + 1] = best.members[best.at]
      best.at = best.at + 1
      next_of_line(best)
      replace_first(heap, best.id and best)
    end
  end
  return ids, members
end

-- Take the best jobs of some lines.
local function merge(suspects, names, limit)
  local heap = {}
  for _, name in ipairs(names) do
    local line = line_of(suspects, name, limit)
    if line.id then
      push(heap, line)
    end
  end
  return take_best(suspects, heap, {}, limit)
end

-- Whether the clock was set back before an instant at which a queue aged. Queues do not become younger,
-- so the age of a group does not match its queues until that instant has come again.
local function is_clock_back()
  return now_ms < tonumber(call('HGET', key.meta, 'aged') or 0)
end

-- Read all lines of a group.
local function push_lines(heap, suspects, group, seen, limit)
  while group.entry do
    local line = line_of_entry(suspects, group, seen, limit)
    if line then
      push(heap, line)
    end
    next_of_group(group, CHUNK)
  end
end

-- Take the best jobs of all lines that this worker may claim from.
local function merge_all(suspects, limit)
  local heap, seen = {}, {}
  for _, group in ipairs(groups_of(suspects, math.huge)) do
    group.entries, group.at, group.chunk = {}, 0, 0
    group.to, group.age = '(' .. sub(group.prefix, 1, -2) .. '\1', age_of_group(group.name)
    if next_of_group(group, limit) then
      if group.name ~= '' and is_clock_back() then
        push_lines(heap, suspects, group, seen, limit)
      else
        push(heap, group)
      end
    end
  end
  return take_best(suspects, heap, seen, limit)
end

local function stretch(suspects, line, offset, number)
  local from, to = bounds(suspects, line)
  local members, ids = range(from, to, offset, number), {}
  for at, member in ipairs(members) do
    ids[at] = id_in(member, #line)
  end
  if offset == 0 then
    touched[suspects .. line] = members[1] or false
  end
  return ids, members
end

-- Over all lines; in most cases there is one.
local function front_of_all(suspects, limit)
  local from, to = entry_bounds(suspects)
  local entries = entries_between(from, to, 2)
  if #entries == 1 then
    local name = string.match(entries[1], '^.-%z.-%z............(.*)$')
    if sub(entries[1], 2, 2) == '\0' then
      local ids, members = stretch(suspects, name, 0, limit)
      if members[1] and entry_of(suspects .. name, members[1]) == entries[1] then
        return ids, members
      end
    end
  end
  return merge_all(suspects, limit)
end

-- The first jobs of a queue, after an offset.
local function front(suspects, queue, offset, number)
  local lines = lines_of(suspects, queue)
  if #lines == 1 then
    return stretch(suspects, queue, offset, number)
  end
  local ids, members = merge(suspects, lines, offset + number)
  return { unpack(ids, offset + 1) }, { unpack(members, offset + 1) }
end

-- Queues that share a tier: first as many jobs of each as it has turns, then the rest in their order.
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

-- The next ids under a plan, in the order in which they should start, and their members of `ready`.
local function next_in_line(suspects, queues, limit)
  if #queues == 0 then
    return front_of_all(suspects, limit)
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

-- Apply a claim to the bytes of the record; return the new bytes and whether `extra` has progress of an
-- earlier attempt; nil if the job is not in line. Most jobs are claimed once, and only get a tail.
local function claimed(id, bytes, session, nonce, tail)
  local flags = run_flags(bytes)
  if flags then
    return flags .. sub(bytes, 3) .. tail
  end
  local record = load(id)
  if record[STATE] ~= 'ready' or record[HOLD] ~= 'none' then
    return nil
  end
  local has_progress = record[HAS_PROGRESS] ~= 0
  record[ATTEMPT], record[STARTS], record[STARTED_MS] = record[ATTEMPT] + 1, record[STARTS] + 1, now_ms
  record[STATE], record[REASON], record[HAS_PROGRESS] = 'running', '', 0
  record[SESSION], record[TOKEN] = session, nonce
  records[id] = nil  -- the bytes below count
  return pack(record), has_progress
end

-- Take a job of a paused task out of its line. It keeps its place, and is never due.
local function hold_paused(id, record)
  leave(id, record)
  record[HOLD], record[DUE_MS] = 'paused', LATEST_MS
  enter(id, record)
end

-- Lease up to `limit` jobs, whose bodies have up to `most_bytes` in total unless the first alone has
-- more. Expired jobs are cancelled and members without a job are dropped; these do not count, but their
-- number is bounded. Return the leased jobs, and whether a limit other than `limit` cut the batch short.
local function lease(session, nonce, suspects, queues, limit, most_bytes)
  local taken, by_queue, expired, is_done, is_cut_short = {}, {}, 0, false, false
  local left_bytes = most_bytes
  local prefix, tail = session .. '\0' .. nonce .. '\0', first_run(session, nonce)
  while #taken < limit and not is_done do
    local ids, members = next_in_line(suspects, queues, limit - #taken)
    fetch(ids)
    is_done = true
    local ready, held = gather('ZREM', key.ready), gather('ZADD', key.held)
    for number, id in ipairs(ids) do
      local bytes = bytes_of(id)
      local expires_ms = bytes and expires_ms_of(bytes)
      local is_fresh = bytes and (expires_ms < 0 or expires_ms > now_ms)
      local is_paused = is_fresh and has_settings and is_task_paused(task_of(bytes))
      local leased, has_progress
      if is_fresh and not is_paused then
        leased, has_progress = claimed(id, bytes, session, nonce, tail)
      end
      if leased then
        left_bytes = left_bytes - (is_apart(bytes) and call('HSTRLEN', key.body, id) or inline_size(bytes))
        if left_bytes < 0 and #taken > 0 then
          is_done, is_cut_short = true, true
          break
        end
      end
      if leased then
        save_bytes(id, leased)
        if has_progress then
          write('HDEL', key.extra, 'p:' .. id)
        end
        ready[#ready + 1] = members[number]
        local last = #held
        held[last + 1], held[last + 2] = '0', prefix .. id
        local queue = queue_of(bytes)
        by_queue[queue] = (by_queue[queue] or 0) + 1
        taken[#taken + 1] = id
      elseif expired < BITE then
        local record = load(id)
        local is_in_line = record and record[STATE] == 'ready' and record[HOLD] == 'none'
        if is_in_line and is_paused then
          hold_paused(id, record)
        elseif is_in_line then
          move(id, record, 'expire', { reason = 'expired' })
        else
          drop(key.ready, members[number])
        end
        expired = expired + 1
        is_done = false  -- other jobs may move up
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

-- The current ages of the queues of these jobs, packed; "" when none ever aged.
local function ages(ids)
  local found = {}
  for _, id in ipairs(ids) do
    local queue = base_of(queue_of(packed[id]))
    found[queue] = found[queue] or age_now(queue)
  end
  return cmsgpack.pack(found)
end

-- {gone, next_in_ms, suspects wait, ages, id, record, body, id, record, body ...}. A nonce that is not
-- later than all earlier ones leases nothing new, and `gone` is 2; a negative limit leases nothing either.
-- With `is_last`, the nonce is used up even if nothing was found: no later put may lease a job under it.
local function claim(session, nonce, suspects, queues, limit, most_bytes, is_last)
  local _, is_gone, latest = find_session(session)
  if is_gone then
    return { 1, -1, 0, '' }
  end
  local is_new = is_before(latest, nonce)  -- then no job can be held under it
  local ids, is_cut_short, in_ms = {}, false, next_in_ms()
  if not is_new then
    ids = sound_ids(session, nonce, CHUNK)
  end
  if limit < 0 then
    use_up(session, nonce)
  elseif is_new and (in_ms == 0 or is_any_ready(suspects, queues)) then
    notice()
    if in_ms == 0 then  -- otherwise no job is due and no session has expired
      promote()
      reap()
      if select(2, find_session(session)) then
        return { 1, -1, 0, '' }
      end
      in_ms = next_in_ms()
    end
    ids, is_cut_short = lease(session, nonce, suspects, queues, limit, most_bytes)
  end
  if is_last and #ids == 0 then
    use_up(session, nonce)
  end
  local reply = { is_new and 0 or 2, is_cut_short and 0 or in_ms, is_any_ready('1', queues) and 1 or 0, '' }
  fetch(ids)
  if has_settings and #ids > 0 then
    reply[4] = ages(ids)
  end
  for _, id in ipairs(ids) do
    reply[#reply + 1] = id
    reply[#reply + 1] = packed[id]
    -- A missing call cannot be run: the job becomes a dead letter.
    reply[#reply + 1] = is_apart(packed[id]) and call('HGET', key.body, id) or ''
  end
  return reply
end
