-- Store copies of jobs of another engine, each at the end of its line and otherwise exactly as it is.
-- ARGV: 1-3 clock, then for each copy its head, its call, its progress or why it is held, and the entries of its
--       history, as `moves` stores them, and name and value of each step. A head names its fields, see `encode`: instants and numbers that are not
--       set are -1, texts are "".
-- Returns: for each copy "stored", "known" or "held"
--@adds
--@include unique
--@include steps
define_codec()

-- The record of a copy.
local function record_of(copy, body)
  local record = new_record(next_number(), copy.created_ms, copy.priority, copy.queue, copy.task)
  record[ATTEMPT], record[STARTS], record[CRASHES], record[LOSSES], record[INTERRUPTIONS], record[SNOOZES],
    record[STRAYS] = unpack(copy.counters)
  record[STATE], record[HOLD], record[REASON], record[SESSION] = copy.state, copy.hold, copy.reason, copy.session
  record[STARTED_MS], record[DUE_MS], record[FINISHED_MS] = copy.started_ms, copy.due_ms, copy.finished_ms
  record[SUSPECT], record[CANCEL_REQUESTED] = copy.suspect, copy.cancel_requested
  record[EXPIRES_MS], record[FINGERPRINT] = copy.expires_ms, copy.fingerprint
  record[HAS_PROGRESS], record[FAILURES] = copy.has_detail, copy.failures
  if copy.state == 'ready' then
    record[READY_MS], record[AGE] = copy.ready_ms, math.max(0, age_now(copy.queue) - copy.waited)
  elseif copy.state == 'scheduled' and record[STARTS] == 0 then
    record[READY_MS] = -1
  end
  if copy.ends_at ~= '' then
    record[UNIQUE] = copy.ends_at .. ' ' .. text_of(copy.period_until_ms) .. ' ' .. copy.unique
  end
  record[CALL] = #body <= MOST_INLINE_CALL and body
  return record
end

-- Let the unique key of a copy lead to it, if the copy holds the key. Returns whether no other job holds it.
local function take_key(copy)
  local holds = copy.ends_at ~= '' and (HOLDING[copy.ends_at][copy.state] or copy.period_until_ms > now_ms)
  if holds and find_holder(copy.task, copy.unique) then
    return false
  elseif holds then
    lead(copy.task, copy.unique, copy.id)
  end
  return true
end

-- `at` is where the parts begin that are stored apart from the record.
local function put(copy, at)
  local id, body = copy.id, ARGV[at]
  if load(id) then
    return 'known'
  elseif not take_key(copy) then
    return 'held'
  end
  local record = record_of(copy, body)
  records[id] = record
  if not record[CALL] then
    write('HSET', key.body, id, body)
  end
  if copy.has_detail ~= 0 then
    write('HSET', key.extra, 'p:' .. id, ARGV[at + 1])
  end
  for number = 0, copy.failures - 1 do
    write('HSET', key.extra, 'f:' .. number .. ':' .. id, ARGV[at + 2 + number])
  end
  for number = 0, copy.steps - 1 do
    local from = at + 2 + copy.failures + 2 * number
    write('ZADD', key.steps, '0', step_member(id, ARGV[from], ARGV[from + 1]))
  end
  enter(id, record, copy.keep_ms)
  count(record[QUEUE], record[STATE], 1)
  if record[STATE] == 'dead' then
    define_groups()
    enter_group(id, record)
  end
  return 'stored'
end

local copies, places, ids, reply, at = {}, {}, {}, {}, 4
while at <= #ARGV do
  local copy = cmsgpack.unpack(ARGV[at])
  copies[#copies + 1], places[#places + 1], ids[#ids + 1] = copy, at + 1, copy.id
  at = at + 3 + copy.failures + 2 * copy.steps
end
fetch(ids)
for number, copy in ipairs(copies) do
  reply[number] = put(copy, places[number])
end
settle()
return reply
