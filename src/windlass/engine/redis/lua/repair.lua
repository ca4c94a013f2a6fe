-- Run one batch of a repair: rebuild indexes and counters from the records. Each batch is atomic, so that
-- workers may keep running.
-- KEYS: keys key_expiry schedule schedule_names schedule_due
-- ARGV: 1-3 clock, 4 the step, 5 cursor ("0" = begin), 6 "1" to fix what is wrong, "0" only to
--       report
-- Returns: {next cursor ("" = at the end), for each fault "1" or "0", whether it can be fixed, and a
--          sentence}
--@adds
--@include indexes

local CHECKED_OWNERS = 50  -- jobs with steps, in one batch
local walk, far, is_changing = ARGV[4], ARGV[5], ARGV[6] == '1'
local reply = { '' }

-- Report a fault; return whether to fix it now.
local function fix(sentence, ...)
  reply[#reply + 1] = '1'
  reply[#reply + 1] = string.format(sentence, ...)
  return is_changing
end

local function leave_as_it_is(sentence, ...)
  reply[#reply + 1] = '0'
  reply[#reply + 1] = string.format(sentence, ...)
end

-- Walk the fields of a hash, which has no order, in batches.
local function scan(name, number, visit)
  local found = call('HSCAN', name, far, 'COUNT', number)
  for at = 1, #found[2], 2 do
    if found[2][at] ~= '' then
      visit(found[2][at], found[2][at + 1])
    end
  end
  reply[1] = found[1] ~= '0' and found[1] or ''
end

-- Walk a sorted set by rank; `visit` returns whether it removed a member.
local function pass(name, visit)
  local from = tonumber(far)
  local found, removed = call('ZRANGE', name, from, from + BITE - 1, 'WITHSCORES'), 0
  for at = 1, #found, 2 do
    if found[at] ~= '' and visit(found[at], found[at + 1]) then
      removed = removed + 1
    end
  end
  if #found == 2 * BITE then
    reply[1] = text_of(from + BITE - removed)
  end
end

local WALKS = {}

function WALKS.sentinels()
  for _, name in ipairs(SENTINELS.hash) do
    if call('HEXISTS', key[name], '') == 0 and fix('The hash %s has lost its sentinel: it gets one.', name) then
      call('HSET', key[name], '', '')
    end
  end
  for _, name in ipairs(SENTINELS.set) do
    if not call('ZSCORE', key[name], '') and fix('The set %s has lost its sentinel: it gets one.', name) then
      call('ZADD', key[name], SCORES[name] or '0', '')
    end
  end
end

-- The instant at which the purge should visit a job that has ended.
local function keep_ms(record)
  if record[RESULT_MS] >= 0 then
    return record[RESULT_MS]
  end
  local ttl_ms = record[STATE] == 'succeeded' and MIN_RECORD_MS or math.max(dead_ttl_ms, MIN_RECORD_MS)
  return math.max(record[FINISHED_MS], 0) + ttl_ms
end

local INDEXES = { 'ready', 'due', 'parked', 'held', 'asked', 'keep', 'cancelled', 'dead', 'deaths' }
local SCORE_OF = {
  due = function(record) return record[DUE_MS] >= 0 and record[DUE_MS] or now_ms end,
  keep = keep_ms, cancelled = keep_ms, dead = keep_ms,
}

local function list_in(name, id, record)
  local member = right_member(name, id, record)
  if member and not call('ZSCORE', key[name], member)
      and fix('Job %s is %s (held: %s), but not listed in %s: it is listed.', id, record[STATE], record[HOLD], name) then
    if name == 'ready' then
      touch(record[SUSPECT] .. record[QUEUE])
      note_ready(record[SUSPECT], record[QUEUE], now_ms, record[TASK])
    end
    write('ZADD', key[name], text_of(SCORE_OF[name] and SCORE_OF[name](record) or 0), member)
  end
end

-- No worker would ever take back a job that runs for a session without a lease.
local function lease_to(id, session)
  if not call('ZSCORE', key.lease, session)
      and fix('Job %s runs for session %s, which is unknown: the session gets a lease, and beats or loses the job.', id, session) then
    call('ZADD', key.lease, now_ms + lease_ms, session)
    call('HSETNX', key.sessions, session, '0')
  end
end

local function repair_unique(id, record)
  local ends_at, _, name = read_unique(record)
  if ends_at == 'start' or not HOLDING[ends_at][record[STATE]] or last_stored(record[TASK], name) == id then
    return
  end
  local holder = find_holder(record[TASK], name)
  if holder == id then
    return  -- hidden by an entry that points to no job, which is removed separately
  elseif holder then
    leave_as_it_is('Job %s and job %s both hold the unique key %s.', id, holder, name)
  elseif fix('Job %s holds the unique key %s, but that does not lead to it: it leads to it.', id, name) then
    lead(record[TASK], name, id)
  end
end

local function repair_record(id, record)
  for _, name in ipairs(INDEXES) do
    list_in(name, id, record)
  end
  if record[STATE] == 'running' then
    lease_to(id, record[SESSION])
  end
  if record[UNIQUE] ~= '' then
    repair_unique(id, record)
  end
  local last = math.max(record[PLACE], record[ROW])
  if last > sequence and fix('Job %s has a place or row beyond the sequence: the sequence continues after it.', id) then
    sequence = last
  end
  if waits(record) ~= (record[DUE_MS] >= 0) then
    if waits(record) and fix('Job %s is %s without a due time: it is due now.', id, record[STATE]) then
      record[DUE_MS] = now_ms
      save(id)
    elseif not waits(record) and fix('Job %s is %s with a due time: it has none.', id, record[STATE]) then
      record[DUE_MS] = -1
      save(id)
    end
  end
  if not record[CALL] and call('HEXISTS', key.body, id) == 0
      and fix('Job %s has no body: it gets an empty one, with which it becomes a dead letter when it is run.', id) then
    write('HSET', key.body, id, '')
  end
end

function WALKS.job()
  scan(key.job, BITE / 2, function(id, bytes)
    if #bytes < QUEUE_AT then
      leave_as_it_is('The record of job %s cannot be read.', id)
      return
    end
    packed[id] = bytes
    repair_record(id, load(id))
  end)
end

-- Remove entries from an index that do not belong there.
local function clean(name)
  pass(key[name], function(member, score)
    local id = ID_OF[name](member)
    local record = load(id)
    local is_right = record and right_member(name, id, record) == member
    if is_right and name == 'due' and tonumber(score) ~= record[DUE_MS] and record[DUE_MS] >= 0 then
      if fix('Job %s is due at %.0f, but listed for %s: corrected.', id, record[DUE_MS], score) then
        write('ZADD', key.due, text_of(record[DUE_MS]), member)
      end
    elseif not is_right and fix('%s lists job %s, which %s: the entry is removed.', name, id,
        record and 'does not belong there' or 'does not exist') then
      if name == 'ready' then
        touch(sub(member, 1, (string.find(member, '\0', 2, true) or #member + 1) - 1))
      end
      write('ZREM', key[name], member)
      return true
    end
  end)
end

for _, name in ipairs(INDEXES) do
  WALKS[name] = function() clean(name) end
end

function WALKS.unique()
  pass(key.unique, function(member)
    local id = last_part(member)
    local record = load(id)
    if not (record and record[UNIQUE] ~= '' and unique_member(id, record) == member)
        and fix('A unique key leads to job %s, which has another one or does not exist: the entry is removed.', id) then
      call('ZREM', key.unique, member)
      return true
    end
  end)
end

-- The numbers of groups of dead jobs, after their jobs are listed. Groups without jobs come first.
function WALKS.dead_groups()
  pass(key.dead_groups, function(group)
    if size_of_group(group) == 0 and fix('A group of dead jobs of task %s is empty: it is removed.', last_part(group)) then
      call('ZREM', key.dead_groups, group)
      return true
    end
  end)
end

function WALKS.listed_groups()
  local groups = groups_behind(far == '0' and '' or far, BITE)
  for _, group in ipairs(groups) do
    local counted, found = tonumber(call('ZSCORE', key.dead_groups, group) or 0), size_of_group(group)
    if counted ~= found and fix('A group of dead jobs of task %s counts %d, but there are %d: corrected.',
        last_part(group), counted, found) then
      call('ZADD', key.dead_groups, text_of(found), group)
    end
  end
  reply[1] = #groups == BITE and groups[BITE] or ''
end

function WALKS.lines()
  pass(key.lines, function(entry)
    local mark = mark_of_entry(entry)
    if (not mark or right_entry(mark) ~= entry)
        and fix('lines lists line %s, which has another first job, or none, or is paused: the entry is removed.',
          mark and sub(mark, 2) or entry) then
      call('ZREM', key.lines, entry)
      return true
    end
  end)
end

function WALKS.ready_lines()
  local marks = marks_behind(far == '0' and '' or far, BITE)
  for _, mark in ipairs(marks) do
    local entry = right_entry(mark)
    if entry and not call('ZSCORE', key.lines, entry)
        and fix('Line %s has something ready, but is not listed in lines: it is listed.', sub(mark, 2)) then
      call('ZADD', key.lines, '0', entry)
      note_ready(sub(mark, 1, 1), sub(mark, 2), now_ms)
    end
  end
  reply[1] = #marks >= BITE and marks[#marks] or ''
end

-- Bodies may be large, so they are read a few at a time.
function WALKS.body()
  scan(key.body, 10, function(id)
    local record = load(id)
    if (not record or record[CALL]) and fix('A body is stored for job %s, which does not exist or has its own: it is removed.', id) then
      call('HDEL', key.body, id)
    end
  end)
end

function WALKS.steps()
  local ids = owners_behind(far == '0' and '' or far, CHECKED_OWNERS)
  for _, id in ipairs(ids) do
    if not load(id) and fix('A step is stored for job %s, which does not exist: it is removed.', id) then
      for _, member in ipairs(call('ZRANGEBYLEX', key.steps, '[' .. id, '(' .. id .. '\1')) do
        call('ZREM', key.steps, member)
      end
    end
  end
  reply[1] = #ids == CHECKED_OWNERS and ids[CHECKED_OWNERS] or ''
end

function WALKS.keys()
  scan(key.keys, BITE / 2, function(field, packed_entry)
    if not call('ZSCORE', key.key_expiry, field)
        and fix('An idempotency key of job %s would never be forgotten: it will be.', cmsgpack.unpack(packed_entry)[1]) then
      call('ZADD', key.key_expiry, text_of(cmsgpack.unpack(packed_entry)[3]), field)
    end
  end)
end

function WALKS.key_expiry()
  pass(key.key_expiry, function(field)
    if call('HEXISTS', key.keys, field) == 0 and fix('An idempotency key is to be forgotten that is not known: the entry is removed.') then
      call('ZREM', key.key_expiry, field)
      return true
    end
  end)
end

function WALKS.lease()
  pass(key.lease, function(session)
    if call('HEXISTS', key.sessions, session) == 0
        and fix('Session %s has a lease, but is not known: it is known until the lease ends.', session) then
      call('HSET', key.sessions, session, '0')
    end
  end)
end

-- Schedules: complete ones are listed; remains of others are removed.
function WALKS.schedule()
  scan(key.schedule, BITE / 2, function(field)
    local name = sub(field, 3)
    local parts = call('HMGET', key.schedule, 'r:' .. name, 'n:' .. name, 'b:' .. name)
    if not (parts[1] and parts[2] and parts[3]) then
      if fix('Schedule %s is not stored as a whole: what is left of it is removed; the app declares it again.', name) then
        call('HDEL', key.schedule, 'r:' .. name, 'n:' .. name, 'b:' .. name)
        call('ZREM', key.schedule_names, name)
        call('ZREM', key.schedule_due, name)
      end
      return
    end
    if not call('ZSCORE', key.schedule_names, name) and fix('Schedule %s is not listed: it is listed.', name) then
      call('ZADD', key.schedule_names, '0', name)
    end
    local due_ms, score = cmsgpack.unpack(parts[1])[2], call('ZSCORE', key.schedule_due, name)
    if tonumber(score or -1) ~= due_ms
        and fix('Schedule %s is due at %.0f, but listed for %s: corrected.', name, due_ms, score or 'never') then
      if due_ms >= 0 then
        call('ZADD', key.schedule_due, text_of(due_ms), name)
      else
        call('ZREM', key.schedule_due, name)
      end
    end
  end)
end

local function remove_unknown_names(index)
  pass(key[index], function(name)
    if call('HEXISTS', key.schedule, 'r:' .. name) == 0
        and fix('%s lists schedule %s, which does not exist: the entry is removed.', index, name) then
      call('ZREM', key[index], name)
      return true
    end
  end)
end

function WALKS.schedule_names()
  remove_unknown_names('schedule_names')
end

function WALKS.schedule_due()
  remove_unknown_names('schedule_due')
end

-- Settings of queues, and their number.
function WALKS.settings()
  local number, fields = 0, call('HGETALL', key.meta)
  for at = 1, #fields, 2 do
    number = number + (sub(fields[at], 1, 2) == 'q:' and 1 or 0)
  end
  if number ~= tonumber(has_settings or 0)
      and fix('%d queues have settings, but %d are counted: they are recounted.', number, tonumber(has_settings or 0)) then
    if number > 0 then
      call('HSET', key.meta, 'queues', number)
    else
      call('HDEL', key.meta, 'queues')
    end
  end
end

-- The list of queues and tasks that count enqueued jobs. The history does not get those since the last minute, rather
-- than any job twice.
function WALKS.pairs()
  local names, number, is_right = read_pairs(call('HGETALL', key.meta))
  if not is_right and fix('%d queues and tasks count enqueued jobs, but others are listed: these are listed.', #names) then
    local sampled = {}
    for position, name in ipairs(names) do
      sampled[2 * position - 1], sampled[2 * position] = tonumber(call('HGET', key.meta, 'e:' .. name)), now_ms
    end
    call('HSET', key.meta, 'pair_names', cmsgpack.pack(names), 'pairs', text_of(number), 'sampled', cmsgpack.pack(sampled))
  end
end

-- Counters: records are counted index by index, each in its own order and in batches, into fields of
-- `meta`. Every call that takes a job from a place which was already counted, or to one, also changes these
-- fields: see `note_change`. So all counts are of one instant at the end.
local function forget_recount()
  local fields, old = call('HGETALL', key.meta), { 'recounted', 'recounted_ms' }
  for at = 1, #fields, 2 do
    if sub(fields[at], 1, 2) == 'c:' then
      old[#old + 1] = fields[at]
    end
  end
  for from = 1, #old, CHUNK do
    call('HDEL', key.meta, unpack(old, from, math.min(from + CHUNK - 1, #old)))
  end
end

local function compare_counters()
  local right, fields = {}, call('HGETALL', key.meta)
  for at = 1, #fields, 2 do
    if sub(fields[at], 1, 2) == 'c:' then
      right[sub(fields[at], 3)] = tonumber(fields[at + 1])
    end
  end
  local stored = call('HGETALL', key.count)
  for at = 1, #stored, 2 do
    if stored[at] ~= '' then
      right[stored[at]] = (right[stored[at]] or 0)
    end
  end
  for field, number in pairs(right) do
    local counted = call('HGET', key.count, field)
    local line, state = string.match(field, '^(.*)%z(.*)$')
    if tonumber(counted or 0) ~= number
        and fix('Line %s counts %s jobs as %s, but there are %d: corrected.', line or field, counted or 0, state or '', number) then
      if number > 0 then
        call('HSET', key.count, field, text_of(number))
      else
        call('HDEL', key.count, field)
      end
    end
  end
end

-- Count a batch of an index; return the place of its last entry, or nil at the end.
local function count_in(name, score, member)
  local entries = {}
  if SCORES[name] then
    entries = timed_after(key[name], score, member, CHUNK)
  else
    for number, each in ipairs(call('ZRANGEBYLEX', key[name], '(' .. member, '+', 'LIMIT', 0, CHUNK)) do
      entries[2 * number - 1], entries[2 * number] = each, '0'
    end
  end
  local found = {}
  for at = 1, #entries, 2 do
    local id = ID_OF[name](entries[at])
    local record = load(id)
    if record and index_of(record) == name and member_of(name, id, record) == entries[at]
        and (name ~= 'due' or record[DUE_MS] == tonumber(entries[at + 1])) then
      local field = counter_of(packed[id])
      found[field] = (found[field] or 0) + 1
    end
  end
  for field, number in pairs(found) do
    call('HINCRBY', key.meta, 'c:' .. field, number)
  end
  if #entries == 2 * CHUNK then
    return entries[#entries] .. ' ' .. entries[#entries - 1]
  end
end

local BEGINNING = '-inf '  -- an instant and a member

function WALKS.counts()
  if far == '0' then
    forget_recount()
    recounted = '1 ' .. BEGINNING
  elseif not recounted then
    leave_as_it_is('The counters were not counted to the end: another repair was made at the same time, or this one took a rest. Repeat it.')
    return
  end
  local number, score, member = string.match(recounted, '^(%d+) (%S+) (.*)$')
  local last_number = 0
  for name, each in pairs(RECOUNTED) do
    last_number = math.max(last_number, each)
    if each == tonumber(number) then
      local last = count_in(name, score, member)
      recounted = last and number .. ' ' .. last or text_of(number + 1) .. ' ' .. BEGINNING
    end
  end
  if tonumber(string.match(recounted, '^%d+')) <= last_number then
    reply[1] = recounted
    call('HSET', key.meta, 'recounted', recounted, 'recounted_ms', text_of(now_ms))
  else
    compare_counters()
    forget_recount()
  end
end

WALKS[walk]()
if is_changing then
  for at = 2, #reply, 2 do
    totals.repaired = (totals.repaired or 0) + tonumber(reply[at])
  end
end
settle()
return reply
