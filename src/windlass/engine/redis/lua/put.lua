-- Store plain jobs, each at most once: without keys, ready at once, never expiring, with calls that fit
-- into their records. The client has encoded all of a record that does not depend on the server.
-- KEYS: meta job ready count lines
-- ARGV: 1-3 clock, then for each run of jobs with the same queue, task and priority: the queue, the rank, the
--       number of jobs, the counter of queue and task, and for each job its id and its record from the
--       priority on
-- Returns: 1, or 0 if a queue has settings or counters are recounted: nothing was stored, and `put_any`
--          stores the jobs
--@adds
--@include first_counter
--@include meta
--@include layout
--@include line_entry
--@include enqueue_counters
if recounted then
  return 0
end
if has_settings then
  local at = 4
  while ARGV[at] do
    if settings[string.match(ARGV[at], '^[^+]*')] then
      return 0
    end
    at = at + 4 + 2 * ARGV[at + 2]
  end
end
local NEW = '\0\0'  -- the flags of a new job
local wake_up

-- The functions that wake workers are defined only if some wait.
if call('ZCARD', key.idle) > 1 then
--@insert handoff
  local function make_bytes(number)
    return NEW .. pack_numbers('>I6I6', number, now_ms) .. ARGV[9]
  end
  if #ARGV == 9 then
    local queue_size, task_size = unpack_numbers('>HH', ARGV[9], 2)
    local task = sub(ARGV[9], 6 + queue_size, 5 + queue_size + task_size)
    if hand_over(ARGV[8], ARGV[4], task, #ARGV[9], make_bytes) then
      return 1
    end
  end
  wake_up = not has_no_waiters and wake
end

-- Store new jobs of one line; return whether there were any.
local function store(first_at, last_at, prefix)
  local id = ARGV[first_at]
  if #ARGV == 9 then
    local bytes = NEW .. pack_numbers('>I6I6', sequence + 1, now_ms) .. ARGV[9]
    if call('HSETNX', key.job, id, bytes) == 0 then
      return false
    end
    sequence = sequence + 1
    call('ZADD', key.ready, '0', prefix .. pack_numbers('>I7', sequence) .. id)
    return true
  end
  local ids, records, members, seen = {}, {}, {}, {}
  for at = first_at, last_at, 2 do
    ids[#ids + 1] = ARGV[at]
  end
  local known = call('HMGET', key.job, unpack(ids))
  local last, number = 0, sequence
  for position = 1, #ids do
    id = ids[position]
    if not known[position] and not seen[id] then
      seen[id] = true
      number = number + 1
      records[last + 1] = id
      records[last + 2] = NEW .. pack_numbers('>I6I6', number, now_ms) .. ARGV[first_at + 2 * position - 1]
      members[last + 1], members[last + 2] = '0', prefix .. pack_numbers('>I7', number) .. id
      last = last + 2
    end
  end
  if last == 0 then
    return false
  end
  sequence = number
  call('HSET', key.job, unpack(records))
  call('ZADD', key.ready, unpack(members))
  return true
end

-- A new job comes after all others of its rank, so the entry of its line changes only if the rank is better
-- than that of the first job.
local function list_line(queue, first, rank, place)
  local mark_size, labels = #queue + 1, string.match(queue, '%+.*$') or ''
  local base = sub(queue, 1, #queue - #labels)
  local first_rank, first_place = 0, 0
  if first and #first >= mark_size + 12 then
    first_rank, first_place = unpack_numbers('>I4I7', first, mark_size + 2)
  end
  if not first or rank < first_rank then
    call('ZADD', key.lines, '0', make_entry('0', labels, '', rank, place, base))
    if first then
      call('ZREM', key.lines, make_entry('0', labels, '', first_rank, first_place, base))
    end
  end
end

local at, enqueued = 4, 0  -- `enqueued` jobs have the first counter
while ARGV[at] do
  local queue, rank, number = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local mark, before = '0' .. queue .. '\0', sequence
  local first = call('ZRANGEBYLEX', key.ready, '[' .. mark, '(0' .. queue .. '\1', 'LIMIT', 0, 1)[1]
  if store(at + 4, at + 3 + 2 * number, mark .. pack_numbers('>I4', rank)) then
    list_line(queue, first, rank, before + 1)
    call('HINCRBY', key.count, queue .. '\0ready', sequence - before)
    if stored[7] and ARGV[at + 3] == first_counter then
      enqueued = enqueued + sequence - before
    else
      count_enqueued(ARGV[at + 3], sequence - before)
    end
    if wake_up then
      wake_up('0', queue, sequence - before, ARGV[at + 5])
    end
  end
  at = at + 4 + 2 * number
end
if enqueued > 0 then
  call('HSET', key.meta, 'sequence', text_of(sequence), first_counter, text_of(stored[7] + enqueued))
elseif sequence > stored_sequence then
  call('HSET', key.meta, 'sequence', text_of(sequence))
end
return 1
