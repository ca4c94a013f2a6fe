-- Store new jobs of any kind: the common part of `put_any` and `fire`.
-- KEYS: body ready due keys key_expiry extra
--@include bookkeeping
--@include new_jobs
--@include handoff
--@include enqueue_counters
local is_single = false  -- whether the call stores one job only
local bound = {}         -- keys that this call has bound
local new_pairs = {}     -- counter of a queue and task -> number of new jobs; also a list of these counters

local function key_field(new_job)
  return #new_job[2] .. ':' .. new_job[2] .. new_job[9]
end

-- The job that an idempotency key belongs to, while the key is remembered.
local function find_key(field)
  if bound[field] then
    return bound[field]
  end
  local found = call('HGET', key.keys, field)
  local entry = found and cmsgpack.unpack(found)
  return entry and entry[3] > now_ms and entry
end

local function bind(field, new_job)
  local until_ms = now_ms + (new_job[15] or IDEMPOTENCY_MS)
  bound[field] = { new_job[1], new_job[10], until_ms }
  write('HSET', key.keys, field, cmsgpack.pack(bound[field]))
  write('ZADD', key.key_expiry, text_of(until_ms), field)
  write('HSET', key.extra, 'k:' .. new_job[1], field)
end

-- Store a job, unless it was stored before.
local function store(new_job, body, unique)
  local id, queue, number = new_job[1], new_job[3], next_number()
  local due_ms = due_ms_of(new_job)
  local is_ready = due_ms <= now_ms
  local state, age = is_ready and 'ready' or 'scheduled', has_settings and is_ready and take_age(queue) or 0
  local record = record_of(new_job, number, age, unique, body)
  local bytes = pack(record)
  if not is_single then
    save_bytes(id, bytes)
  elseif call('HSETNX', key.job, id, bytes) == 0 then
    sequence, changed_queues = stored_sequence, {}  -- as if this call had not been made
    return
  elseif note_change then
    note_change(id, false, bytes)
  end
  if not record[CALL] then
    write('HSET', key.body, id, body)
  end
  local place = struct.pack('>I7', number)
  if is_ready then
    local mark, rank = '0' .. queue, 100 - new_job[4] + age
    arrive(mark, rank)
    write('ZADD', key.ready, '0', mark .. '\0' .. struct.pack('>I4', rank) .. place .. id)
    note_ready('0', queue, now_ms, new_job[2])
  else
    write('ZADD', key.due, text_of(due_ms), place .. id)
    note_ready('0', queue, due_ms)
  end
  count(queue, state, 1)
  local pair = 'e:' .. base_of(queue) .. '\0' .. new_job[2]
  if not new_pairs[pair] then
    new_pairs[#new_pairs + 1] = pair
  end
  new_pairs[pair] = (new_pairs[pair] or 0) + 1
end

-- Whether a single job was handed to an idle session.
local function is_handed_over(new_job, body, unique)
  local ends_ms = expires_ms(new_job)
  if not is_single or due_ms_of(new_job) > now_ms or ends_ms >= 0 and ends_ms <= now_ms then
    return false
  end
  local function make_bytes(number)
    local record = record_of(new_job, number, 0, unique, body)
    return pack(record)
  end
  return hand_over(new_job[1], new_job[3], new_job[2], #body, make_bytes, #body > MOST_INLINE_CALL and body)
end

-- The reply for a job that was stored before, or whose idempotency key is known.
local function find_known(new_job)
  if bytes_of(new_job[1]) then
    return new_job[1], 'created'
  end
  local known = new_job[9] and find_key(key_field(new_job))
  if known then
    return known[1], known[2] == new_job[10] and 'existing' or 'conflict'
  end
end

local waiting = {}  -- line -> how many waited before this call

-- Whether a line has reached its limit of waiting jobs.
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

-- Store an unknown job, if there is room; `unique` is the part of its record about its unique key.
local function add_job(new_job, body, unique)
  if has_settings and is_full(new_job[3]) then
    return new_job[1], 'full'
  end
  if not is_handed_over(new_job, body, unique) then
    store(new_job, body, unique)
  end
  if new_job[9] then
    bind(key_field(new_job), new_job)
  end
  return new_job[1], 'created'
end

-- A single job: its writes need not be gathered.
local function put_one(put)
  local new_job = cmsgpack.unpack(ARGV[4])
  is_single, write = true, call
  -- A job without keys, for a queue without settings, can only meet itself, as it is written.
  packed[new_job[1]] = (new_job[9] or new_job[11] or has_settings) and call('HGET', key.job, new_job[1]) or false
  return { put(new_job, ARGV[5]) }
end

local function put_many(put)
  local new_jobs, ids, reply = {}, {}, {}
  for at = 4, #ARGV, 2 do
    new_jobs[#new_jobs + 1] = cmsgpack.unpack(ARGV[at])
    ids[#ids + 1] = new_jobs[#new_jobs][1]
  end
  fetch(ids)
  for number, new_job in ipairs(new_jobs) do
    local id, code = put(new_job, ARGV[3 + 2 * number])
    reply[#reply + 1] = id
    reply[#reply + 1] = code
  end
  return reply
end

-- The last step of a call that stores jobs.
local function settle_jobs()
  for _, pair in ipairs(new_pairs) do
    count_enqueued(pair, new_pairs[pair])
  end
  settle()
end

-- Call `put` for every job: from ARGV 4 on, each has its fields, as in `new_jobs`, and its body.
local function put_all(put)
  local reply = #ARGV == 5 and put_one(put) or put_many(put)
  settle_jobs()
  return reply
end
