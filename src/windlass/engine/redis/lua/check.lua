-- Compare indexes, counters and records, in one bounded batch.
-- KEYS: keys key_expiry schedule schedule_names schedule_due
-- ARGV: 1-3 clock, 4 "counts", "job" for the records, or the index to walk, 5 cursor
-- Returns: {next cursor ("" = at the end), a sentence for each disagreement}
--@include indexes

local CHECKED_OWNERS = 50  -- jobs with steps, in one batch
local reply = { '' }

local function say(sentence, ...)
  reply[#reply + 1] = string.format(sentence, ...)
end

local function check_sentinels()
  for _, name in ipairs(SENTINELS.hash) do
    if call('HEXISTS', key[name], '') == 0 then
      say('The hash %s has lost its sentinel.', name)
    end
  end
  for _, name in ipairs(SENTINELS.set) do
    if not call('ZSCORE', key[name], '') then
      say('The set %s has lost its sentinel.', name)
    end
  end
end

local function compare(what, counted, found)
  if counted ~= found then
    say('The counters say %d jobs %s, but there are %d.', counted, what, found)
  end
end

local function check_counts()
  local size = {}
  for _, name in ipairs({ 'ready', 'due', 'parked', 'held', 'keep', 'cancelled', 'dead', 'deaths', 'key_expiry' }) do
    size[name] = math.max(0, call('ZCARD', key[name]) - 1)
  end
  local states = {}
  local sum = 0
  local counters = call('HGETALL', key.count)
  for at = 1, #counters, 2 do
    local state = string.match(counters[at], '%z(.*)$')
    if state then
      states[state] = (states[state] or 0) + tonumber(counters[at + 1])
      sum = sum + tonumber(counters[at + 1])
    end
  end
  local function counted(...)
    local number = 0
    for _, state in ipairs({ ... }) do
      number = number + (states[state] or 0)
    end
    return number
  end
  compare('exist', sum, call('HLEN', key.job) - 1)
  compare('are ready', counted('ready'), size.ready + size.parked)
  compare('wait for an instant', counted('scheduled', 'retrying') + size.parked, size.due)
  compare('run', counted('running'), size.held)
  compare('are dead', counted('dead'), size.dead)
  compare('are in groups of dead jobs', counted('dead'), size.deaths)
  compare('are cancelled', counted('cancelled'), size.cancelled)
  compare('have succeeded', counted('succeeded'), size.keep)
  local keys = call('HLEN', key.keys) - 1
  if keys ~= size.key_expiry then
    say('%d idempotency keys are known, but %d are to be forgotten.', keys, size.key_expiry)
  end
  local with_settings, fields = 0, call('HGETALL', key.meta)
  for at = 1, #fields, 2 do
    with_settings = with_settings + (sub(fields[at], 1, 2) == 'q:' and 1 or 0)
  end
  if with_settings ~= tonumber(has_settings or 0) then
    say('%d queues have settings, but %d are counted.', with_settings, tonumber(has_settings or 0))
  end
  local counted_pairs, _, is_right = read_pairs(fields)
  if not is_right then
    say('%d queues and tasks count enqueued jobs, but others are listed.', #counted_pairs)
  end
  local parts, names = call('HLEN', key.schedule) - 1, call('ZCARD', key.schedule_names) - 1
  if parts ~= 3 * names then
    say('%d schedules are listed, but they have %d parts instead of three each.', names, parts)
  end
end

local function check_set(id, record, name, is_expected)
  local score = call('ZSCORE', key[name], member_of(name, id, record))
  if is_expected and not score then
    say('Job %s is %s (held: %s), but not listed in %s.', id, record[STATE], record[HOLD], name)
  elseif score and not is_expected then
    say('Job %s is %s (held: %s), but listed in %s.', id, record[STATE], record[HOLD], name)
  end
end

-- A key must point to a job that holds it by its state. A job that holds the key until its start is an
-- exception, if it has come back and another job was stored in the meantime.
local function check_unique(id, record)
  local ends_at, _, name = read_unique(record)
  local holds = ends_at ~= 'start' and HOLDING[ends_at][record[STATE]]
  if holds and last_stored(record[TASK], name) ~= id then
    say('Job %s is %s and holds the unique key %s, but that does not lead to it.', id, record[STATE], name)
  end
end

local function check_record(id, record)
  local state, hold = record[STATE], record[HOLD]
  local waits = state == 'scheduled' or state == 'retrying' or hold ~= 'none'
  check_set(id, record, 'ready', state == 'ready' and hold == 'none')
  check_set(id, record, 'due', waits)
  check_set(id, record, 'parked', hold ~= 'none')
  for final, name in pairs(FINAL) do
    check_set(id, record, name, state == final)
  end
  if state == 'dead' and not call('ZSCORE', key.deaths, death_of(id, record)) then
    say('Job %s is dead, but in no group of dead jobs.', id)
  end
  if state == 'running' then
    check_set(id, record, 'held', true)
    check_set(id, record, 'asked', record[CANCEL_REQUESTED] == 1)
    if not call('ZSCORE', key.lease, record[SESSION]) then
      say('Job %s runs for session %s, which is unknown: no worker will ever take it back.', id, record[SESSION])
    end
  end
  if (state == 'running') ~= (record[TOKEN] ~= '') then
    say('Job %s is %s, and its token is "%s".', id, state, record[TOKEN])
  end
  if (record[DUE_MS] >= 0) ~= waits then
    say('Job %s is %s, held as %s, and its due time is %.0f.', id, state, hold, record[DUE_MS])
  end
  if hold ~= 'none' and state ~= 'ready' then
    say('Job %s is held as %s in state %s.', id, hold, state)
  end
  if record[PLACE] > sequence or record[ROW] > sequence then
    say('Job %s has a place or row beyond the sequence.', id)
  end
  local accounted = record[ATTEMPT] + record[CRASHES] + record[LOSSES] + record[INTERRUPTIONS]
    + record[SNOOZES]
  if record[STARTS] ~= accounted then
    say('Job %s was started %d times, but its budgets account for %d.', id, record[STARTS], accounted)
  end
  if record[UNIQUE] ~= '' then
    check_unique(id, record)
  end
  if not record[CALL] and call('HEXISTS', key.body, id) == 0 then
    say('Job %s has no body.', id)
  end
end

local function check_lease(session)
  if call('HEXISTS', key.sessions, session) == 0 then
    say('Session %s has a lease, but is not known.', session)
  end
end

local function check_schedule(name)
  local stored = call('HMGET', key.schedule, 'r:' .. name, 'n:' .. name, 'b:' .. name)
  if not (stored[1] and stored[2] and stored[3]) then
    say('Schedule %s is listed, but not stored as a whole.', name)
    return
  end
  local due_ms, score = cmsgpack.unpack(stored[1])[2], call('ZSCORE', key.schedule_due, name)
  if tonumber(score or -1) ~= due_ms then
    say('Schedule %s is due at %.0f, but listed for %s.', name, due_ms, score or 'never')
  end
end

-- Entries that do not match their lines, and lines without an entry.
local function check_entry(entry)
  local mark = mark_of_entry(entry)
  if not mark or right_entry(mark) ~= entry then
    say('lines lists line %s, which has another first job, or none, or is paused.', mark and sub(mark, 2) or entry)
  end
end

local function check_lines(mark)
  local marks = marks_behind(mark, BITE)
  for _, each in ipairs(marks) do
    local entry = right_entry(each)
    if entry and not call('ZSCORE', key.lines, entry) then
      say('Line %s has something ready, but is not listed in lines: no worker that serves every queue finds it.',
        sub(each, 2))
    end
  end
  reply[1] = #marks >= BITE and marks[#marks] or ''
end

local function check_group(group)
  local counted, found = tonumber(call('ZSCORE', key.dead_groups, group) or 0), size_of_group(group)
  if counted ~= found then
    say('A group of dead jobs of task %s counts %d, but there are %d.', last_part(group), counted, found)
  end
end

local function check_groups(group)
  local groups = groups_behind(group, BITE)
  for _, each in ipairs(groups) do
    check_group(each)
  end
  reply[1] = #groups == BITE and groups[BITE] or ''
end

local function check_steps(after)
  local ids = owners_behind(after, CHECKED_OWNERS)
  for _, id in ipairs(ids) do
    if not load(id) then
      say('A step is stored for job %s, which does not exist.', id)
    end
  end
  reply[1] = #ids == CHECKED_OWNERS and ids[CHECKED_OWNERS] or ''
end

-- Indexes that are not keyed by the id of a job.
local OTHERS = { dead_groups = check_group, lines = check_entry, lease = check_lease, schedule_names = check_schedule, schedule_due = check_schedule }

-- The records themselves, which have no order.
local function check_records(cursor)
  local found = call('HSCAN', key.job, cursor, 'COUNT', BITE / 2)
  for at = 1, #found[2], 2 do
    local id, bytes = found[2][at], found[2][at + 1]
    if id ~= '' and #bytes >= QUEUE_AT then
      packed[id] = bytes
      check_record(id, load(id))
    elseif id ~= '' then
      say('The record of job %s cannot be read.', id)
    end
  end
  reply[1] = found[1] ~= '0' and found[1] or ''
end

-- Every index must list what follows from a record; additional entries show in the counts.
local function walk(name, from)
  local members = call('ZRANGE', key[name], from, from + BITE - 1)
  for _, member in ipairs(members) do
    if member ~= '' and OTHERS[name] then
      OTHERS[name](member)
    elseif member ~= '' then
      local id = ID_OF[name](member)
      local record = load(id)
      if not record then
        say('%s lists job %s, which does not exist.', name, id)
      else
        check_record(id, record)
        if name == 'deaths' and member ~= right_member(name, id, record) then
          say('A group of dead jobs lists job %s, which is not dead, or in another group.', id)
        end
        if name == 'unique' and member ~= unique_member(id, record) then
          say('A unique key leads to job %s, which has another one.', id)
        end
      end
    end
  end
  if #members == BITE then
    reply[1] = tostring(from + BITE)
  end
end

-- A call that is stored apart must belong to a record without one. Calls may be large, so they are read
-- a few at a time.
local function walk_bodies(cursor)
  local found = call('HSCAN', key.body, cursor, 'COUNT', 10)
  for at = 1, #found[2], 2 do
    local id = found[2][at]
    local record = id ~= '' and load(id)
    if id ~= '' and (not record or record[CALL]) then
      say('body has a call of job %s, which does not exist or has its own.', id)
    end
  end
  reply[1] = found[1] ~= '0' and found[1] or ''
end

if ARGV[4] == 'counts' then
  check_sentinels()
  check_counts()
elseif ARGV[4] == 'job' then
  check_records(ARGV[5])
elseif ARGV[4] == 'ready_lines' then
  check_lines(ARGV[5] == '0' and '' or ARGV[5])
elseif ARGV[4] == 'listed_groups' then
  check_groups(ARGV[5] == '0' and '' or ARGV[5])
elseif ARGV[4] == 'steps' then
  check_steps(ARGV[5] == '0' and '' or ARGV[5])
elseif ARGV[4] == 'body' then
  walk_bodies(ARGV[5])
else
  walk(ARGV[4], tonumber(ARGV[5]))
end
return reply
