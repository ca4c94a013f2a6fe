-- Storing new jobs: what `put`, `put_unique` and `fire` share. A head is {id, task, queue, priority,
-- run_after_ms, run_in_ms, expires_ms, expires_in_ms, key, fingerprint}, -1 for no instant, false for
-- no key.
-- KEYS: body ids ready due keys key_expiry extra
--@include bookkeeping
--@include handing
local bound = {}  -- keys that this call has bound

--@seldom key_field find_key bind
local function key_field(head)
  return #head[2] .. ':' .. head[2] .. head[9]
end

-- The job that an idempotency key belongs to, while it is remembered.
local function find_key(field)
  if bound[field] then
    return bound[field]
  end
  local found = call('HGET', key.keys, field)
  local entry = found and cmsgpack.unpack(found)
  return entry and entry[3] > now_ms and entry
end

local function bind(field, head)
  bound[field] = { head[1], head[10], now_ms + IDEMPOTENCY_MS }
  write('HSET', key.keys, field, cmsgpack.pack(bound[field]))
  write('ZADD', key.key_expiry, now_ms + IDEMPOTENCY_MS, field)
  write('HSET', key.extra, 'k:' .. head[1], field)
end
--@end

local function expires_ms(head)
  if head[8] < 0 then
    return head[7]
  end
  local relative_ms = now_ms + head[8]
  return head[7] < 0 and relative_ms or math.min(head[7], relative_ms)
end

-- Store a job, unless it was stored before.
local function store(head, body, unique)
  local id, queue, number = head[1], head[3], next_number()
  local due_ms, ends_ms = math.max(head[5], now_ms + head[6]), expires_ms(head)
  local is_ready = due_ms <= now_ms
  local task, age = head[2], has_settings and is_ready and take_age(queue) or 0
  local starts, state, session, nonce = 0, is_ready and 'ready' or 'scheduled', '', ''
  if is_single and is_ready and somebody_waits() and find_taker(queue, ends_ms) then
    starts, state, session, nonce = 1, 'running', taker.session, taker.nonce
  end
  local bytes = pack_numbers(NUMBERS, starts, starts, starts == 1 and now_ms or -1, 0, 0, 0,
    is_ready and -1 or due_ms, -1, -1, 0, 0, #state, 4, 0, #session, #nonce, head[4], now_ms, number,
    number, ends_ms, is_ready and now_ms or -1, 0, 0, 0, 0, 0, 0, age, #queue, #task, #unique)
    .. queue .. task .. unique .. state .. 'none' .. session .. nonce
  if not is_single then
    save_bytes(id, bytes)
  elseif call('HSETNX', key.job, id, bytes) == 0 then
    sequence, is_changed, taker = stored_sequence, false, nil  -- as if this call had not been made
    return
  end
  write('HSET', key.body, id, body)
  write('ZADD', key.ids, '0', id)
  local place = struct.pack('>I7', number)
  local member = '0' .. queue .. '\0' .. struct.pack('>I4', 100 - head[4] + age) .. place .. id
  if starts == 1 then
    hand(id, queue, member, bytes, body)
  elseif is_ready then
    write('ZADD', key.ready, '0', member)
  else
    write('ZADD', key.due, due_ms, place .. id)
  end
  if starts == 0 then
    count(queue, state, 1)
    made_ready = made_ready + (due_ms - now_ms <= POLL_FLOOR_MS and 1 or 0)
  end
  enqueued = enqueued + 1
end

-- The answer to a job that was stored before, or whose idempotency key is known.
local function find_known(head)
  if bytes_of(head[1]) then
    return head[1], 'created'
  end
  local known = head[9] and find_key(key_field(head))
  if known then
    return known[1], known[2] == head[10] and 'existing' or 'conflict'
  end
end

local waiting = {}  -- line -> how many waited before this call

--@seldom is_full
-- Whether as many jobs wait in a line as may.
local function is_full(line)
  local own = settings[base_of(line)]
  if not own or own[QUEUE_BOUND] == 0 then
    return false
  end
  local fields = { line .. '\0waiting', line .. '\0scheduled', line .. '\0ready', line .. '\0retrying' }
  local number = waiting[line]
  if not number then
    number = 0
    for _, counted in ipairs(call('HMGET', key.count, unpack(fields))) do
      number = number + tonumber(counted or 0)
    end
    waiting[line] = number
  end
  for _, field in ipairs(fields) do
    number = number + (counts[field] or 0)
  end
  return number >= own[QUEUE_BOUND_HERE]
end
--@end

-- Store a job that is not known, if there is room; `unique` is what its record says of its unique
-- key.
local function add_job(head, body, unique)
  if has_settings and is_full(head[3]) then
    return head[1], 'full'
  end
  store(head, body, unique)
  if head[9] then
    bind(key_field(head), head)
  end
  return head[1], 'created'
end

-- One job: what it writes need not be gathered.
local function put_one(put)
  local head = cmsgpack.unpack(ARGV[4])
  is_single, write = true, call
  -- One without keys, for a queue without settings, meets nothing but itself, as it is written.
  packed[head[1]] = (head[9] or head[11] or has_settings) and call('HGET', key.job, head[1]) or false
  return { put(head, ARGV[5]) }
end

local function put_many(put)
  local heads, ids, reply = {}, {}, {}
  for at = 4, #ARGV, 2 do
    heads[#heads + 1] = cmsgpack.unpack(ARGV[at])
    ids[#ids + 1] = heads[#heads][1]
  end
  fetch(ids)
  for number, head in ipairs(heads) do
    local id, code = put(head, ARGV[3 + 2 * number])
    reply[#reply + 1] = id
    reply[#reply + 1] = code
  end
  return reply
end

-- Let `put` answer for every job: from ARGV 4 on, each has its head and its body.
local function put_all(put)
  local reply = #ARGV == 5 and put_one(put) or put_many(put)
  settle()
  if taker then
    hand_over()
  end
  return reply
end
