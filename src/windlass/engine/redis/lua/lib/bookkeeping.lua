-- Write the side effects of a call: counters, totals, signs of life, wake-ups.
-- KEYS: meta count total
--@include records
--@include places
--@include order
--@include meta
--@include line_index
--@include waiters
-- The indexes in the order in which `repair` counts their jobs.
local RECOUNTED = { held = 1, ready = 2, parked = 3, due = 4, keep = 5, cancelled = 6, dead = 7 }
local changed_queues = {}  -- queue -> true when its settings were changed
local counts, totals = {}, {}
local ends, publish_ends = {}  -- jobs that this call ended or removed, and how to notify their watchers
local made_ready = {}  -- suspects and line -> how many idle sessions to wake
local ready_tasks = {}  -- suspects and line -> how many of these jobs by task, false for unknown tasks
local is_due_soon = {}  -- suspects and line -> whether idle workers would learn of it too late

local function base_of(line)
  local plus = string.find(line, '+', 1, true)
  return plus and sub(line, 1, plus - 1) or line
end

-- The current age of the queue of a line.
local function age_now(line)
  local own = has_settings and settings[base_of(line)]
  if not own then
    return 0
  end
  local passed_ms = now_ms - own[QUEUE_SINCE_MS]
  if own[QUEUE_AGEING_MS] > 0 and passed_ms > 0 then
    return own[QUEUE_AGE] + math.floor(passed_ms / own[QUEUE_AGEING_MS])
  end
  return own[QUEUE_AGE]
end

-- The same for a job that takes its place; the queue stores the age, so that it never decreases.
local function take_age(line)
  local age = age_now(line)
  if age > 0 then
    local own = settings[base_of(line)]
    if age > own[QUEUE_AGE] then
      changed_queues[base_of(line)] = true
    end
    own[QUEUE_SINCE_MS] = own[QUEUE_SINCE_MS] + (age - own[QUEUE_AGE]) * own[QUEUE_AGEING_MS]
    own[QUEUE_AGE] = age
  end
  return age
end

local function count(queue, state, by)
  local field = queue .. '\0' .. state
  counts[field] = (counts[field] or 0) + by
end

local function total(name, by)
  totals[name] = (totals[name] or 0) + (by or 1)
end

local visits = {}   -- job that this call has ended -> when the purge visits it
local recount = {}  -- counter -> change of the records that were already recounted

-- While `repair` counts all records, index by index, `recounted` is the place up to which it has counted.
-- A record that leaves or enters a place before it was or would have been counted there.
if recounted then
  define_codec()
  local number, score, last = string.match(recounted, '^(%d+) (%S+) (.*)$')
  number, score = tonumber(number), tonumber(score)

  -- Without `visit_ms`, of a job as its index still has it: this call has not sent its writes yet.
  local function is_counted(id, record, visit_ms)
    local index = index_of(record)
    local here, member = 0, member_of(index, id, record)
    if RECOUNTED[index] ~= number then
      return RECOUNTED[index] < number
    elseif index == 'due' then
      here = record[DUE_MS]
    elseif FINAL[record[STATE]] then
      here = tonumber(visit_ms or call('ZSCORE', key[index], id) or math.huge)
    end
    return here < score or here == score and not is_before(last, member)
  end

  local function recount_one(bytes, by)
    local field = counter_of(bytes)
    recount[field] = (recount[field] or 0) + by
  end

  function note_change(id, before, bytes)
    if before and is_counted(id, unpack_record(before)) then
      recount_one(before, -1)
    end
    if bytes and is_counted(id, unpack_record(bytes), visits[id]) then
      recount_one(bytes, 1)
    end
  end
end

-- Drop and count an index entry that points to no job, or to a job that does not belong there.
local function drop(name, member)
  write('ZREM', name, member)
  total('orphans')
end

-- Note a job of a line that became ready, or will be before idle workers renew their wait. Without a task,
-- jobs of any tasks may be ready.
local function note_ready(suspects, line, due_ms, task)
  local of_line = suspects .. line
  if due_ms > now_ms then
    is_due_soon[of_line] = is_due_soon[of_line] or due_ms - now_ms <= RENEWED_WITHIN_MS
  else
    made_ready[of_line] = (made_ready[of_line] or 0) + 1
    local tasks_here = ready_tasks[of_line] or {}
    ready_tasks[of_line] = tasks_here
    tasks_here[task or false] = (tasks_here[task or false] or 0) + 1
  end
end

local function add(name, field, by)
  if by ~= 0 and call('HINCRBY', name, field, by) == 0 then
    call('HDEL', name, field)
  end
end

local function save_settings()
  local number, aged_ms = 0, tonumber(call('HGET', key.meta, 'aged') or 0)
  for queue in pairs(changed_queues) do
    if settings[queue] then
      if settings[queue][QUEUE_SINCE_MS] > aged_ms then
        aged_ms = settings[queue][QUEUE_SINCE_MS]
        call('HSET', key.meta, 'aged', text_of(aged_ms))
      end
      number = number + call('HSET', key.meta, 'q:' .. queue, cmsgpack.pack(settings[queue]))
    else
      number = number - call('HDEL', key.meta, 'q:' .. queue)
    end
  end
  add(key.meta, 'queues', number)
end

-- The last step of a call. A call that found nothing to do writes nothing.
local function settle()
  flush()
  for field, by in pairs(counts) do
    add(key.count, field, by)
  end
  for name, by in pairs(totals) do
    add(key.total, name, by)
  end
  for field, by in pairs(recount) do
    add(key.meta, 'c:' .. field, by)
  end
  if sequence ~= stored_sequence then
    call('HSET', key.meta, 'sequence', text_of(sequence))
  end
  if leases ~= stored_leases then
    call('HSET', key.meta, 'leases', leases)
  end
  if last_seen_ms ~= stored_last_seen_ms or reap_after_ms ~= stored_reap_after_ms then
    call('HSET', key.meta, 'last_seen', text_of(last_seen_ms), 'reap_after', text_of(reap_after_ms))
  end
  if next(changed_queues) then
    save_settings()
  end
  if ends[1] then
    publish_ends()
  end
  if has_no_waiters then
    return
  end
  for of_line, number in pairs(made_ready) do
    wake(sub(of_line, 1, 1), sub(of_line, 2), number, ready_tasks[of_line])
  end
  for of_line, is_due in pairs(is_due_soon) do
    if is_due then
      wake(sub(of_line, 1, 1), sub(of_line, 2), 1, nil, true)
    end
  end
end
