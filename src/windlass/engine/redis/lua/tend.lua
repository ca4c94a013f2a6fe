-- Run one bounded batch of maintenance: take back the jobs of expired sessions, remove records past their
-- retention, make jobs ready that are held as paused although their task is not paused, and keep the history.
-- KEYS: watch_until
-- ARGV: 1-3 clock, 4 "1" to remove a dead job only if it is named, 5 the byte limit of the unnamed
--       dead jobs to return, then the named ids
-- Returns: {number of jobs taken back, number of removed records, whether there is more,
--          dead jobs past their retention that were not named, each with its bytes}
--@include line
--@include removal
--@include history_upkeep
--@include walk
--@include group_walk

local LINES_AT_A_TIME = 20
local is_careful, bytes_left, known, doomed = ARGV[4] == '1', tonumber(ARGV[5]), {}, {}
local is_cut_short = false
for at = 6, #ARGV do
  known[ARGV[at]] = true
end

-- The parts that a reader of a job gets: its call and its history.
local function weigh(id, record)
  local bytes = record[CALL] and #record[CALL] or call('HSTRLEN', key.body, id)
  bytes = bytes + call('HSTRLEN', key.extra, 'p:' .. id)
  for number = 0, math.min(record[FAILURES], MAX_FAILURES) - 1 do
    bytes = bytes + call('HSTRLEN', key.extra, 'f:' .. number .. ':' .. id)
  end
  return bytes
end

local function doom(id, record)
  if is_cut_short then
    return
  end
  local bytes = weigh(id, record)
  bytes_left = bytes_left - bytes
  is_cut_short = bytes_left < 0 and #doomed > 0
  if not is_cut_short then
    doomed[#doomed + 1] = id
    doomed[#doomed + 1] = bytes
  end
end

local function until_now(name, most)
  return call('ZRANGEBYSCORE', name, '-inf', now_ms, 'LIMIT', 0, most or BITE)
end

-- Remove a record, or only its result while the record is still needed.
local function purge(index, id, record)
  if not record or FINAL[record[STATE]] ~= index then
    drop(key[index], id)
    return 0
  end
  local record_until_ms, period_until_ms = record[FINISHED_MS] + MIN_RECORD_MS, 0
  if record[UNIQUE] ~= '' then
    period_until_ms = select(2, read_unique(record))
    record_until_ms = math.max(record_until_ms, period_until_ms)
  end
  if record[RESULT_MS] >= 0 and record_until_ms > now_ms then
    if not record[RESULT] then
      write('HDEL', key.extra, 'r:' .. id)
    end
    record[RESULT_MS], record[RESULT] = -1, ''
    enter(id, record, record_until_ms)
    return 0
  elseif period_until_ms > now_ms then  -- the record still holds its unique key
    enter(id, record, period_until_ms)
    return 0
  elseif is_careful and record[STATE] == 'dead' and not known[id] then
    doom(id, record)
    return 0
  end
  remove(id, record)
  return 1
end

local function forget(session)
  local _, is_gone = find_session(session)
  if not is_gone and call('ZSCORE', key.lease, session) then
    write('ZREM', key.forget, session)  -- it has leased a job since, and lives
  elseif #sound_ids(session, nil, BITE) == 0 then
    write('ZREM', key.forget, session)
    write('ZREM', key.lease, session)
    write('HDEL', key.sessions, session, session .. '\0command')
  end
end

if recounted and now_ms - tonumber(call('HGET', key.meta, 'recounted_ms') or 0) > MIN_RECORD_MS then
  call('HDEL', key.meta, 'recounted', 'recounted_ms')  -- the repair was abandoned
end
-- A worker that serves every queue would not find a line that is missing in the index of lines. Each
-- call examines a few lines, in turn.
local function list_missing_lines()
  local marks = marks_behind(call('HGET', key.meta, 'lines_seen') or '', LINES_AT_A_TIME)
  for _, mark in ipairs(marks) do
    local entry = right_entry(mark)
    if entry and not call('ZSCORE', key.lines, entry) then
      call('ZADD', key.lines, '0', entry)
      total('orphans')
      note_ready(sub(mark, 1, 1), sub(mark, 2), now_ms)
    end
  end
  if #marks == LINES_AT_A_TIME then
    call('HSET', key.meta, 'lines_seen', marks[#marks])
  else
    call('HDEL', key.meta, 'lines_seen')
  end
end

-- Make jobs ready that an interrupted resume left behind. A call examines up to BITE held jobs, and continues
-- where the last one stopped; jobs of paused tasks are skipped by one seek for each task.
local function resume_rest()
  local after, seen, resumed = call('HGET', key.meta, 'held_seen') or '', 0, 0
  while seen < BITE do
    local first = call('ZRANGEBYLEX', key.parked, '(' .. after, '+', 'LIMIT', 0, 1)[1]
    if not first then
      break
    end
    local task = string.match(first, '^[^%z]*')
    after = task .. '\1'
    if not is_task_paused(task) then
      local members = call('ZRANGEBYLEX', key.parked, '[' .. first, '(' .. after, 'LIMIT', 0, BITE - seen)
      local ids = {}
      for number, member in ipairs(members) do
        ids[number] = sub(member, #task + 9)
      end
      fetch(ids)
      for number, id in ipairs(ids) do
        local record = load(id)
        if record and record[HOLD] == 'paused' and members[number] == member_of('parked', id, record) then
          offer_again(id, record)
          resumed = resumed + 1
        end
      end
      seen = seen + #members
      after = seen == BITE and members[#members] or after
    end
  end
  if seen == BITE then
    call('HSET', key.meta, 'held_seen', after)
  else
    call('HDEL', key.meta, 'held_seen')
  end
  return seen == BITE and resumed > 0
end

-- Processes of an earlier version know no groups of dead jobs: those that they end are in no group, and those that
-- they revive or remove stay in theirs. While the numbers differ, each call puts some dead jobs into their groups,
-- then takes others from them, and continues where the last one stopped. `deaths_seen` is the place of such a walk,
-- or the instant of its end: the next one begins some minutes later. Equal numbers may hide one job too many and one
-- too few, so a walk begins at least once a day. It is not urgent, and asks for no further call.
local function walk_deaths(after)
  local members = call('ZRANGEBYLEX', key.deaths, '(' .. after, '+', 'LIMIT', 0, BITE)
  for _, member in ipairs(members) do
    local group = group_at(member)
    local id = group and sub(member, #group + 8) or ''
    local record = load(id)
    if not record or record[STATE] ~= 'dead' or death_of(id, record) ~= member then
      call('ZREM', key.deaths, member)
      total('orphans')
      if group and tonumber(call('ZADD', key.dead_groups, 'INCR', '-1', group)) <= 0 then
        call('ZREM', key.dead_groups, group)
      end
    end
  end
  return #members == BITE and '-' .. members[BITE] or '=' .. text_of(now_ms)
end

local function walk_dead(score, member)
  local entries = timed_after(key.dead, score, member, BITE)
  for at = 1, #entries, 2 do
    local record = entries[at] ~= '' and load(entries[at])
    if record and record[STATE] == 'dead' then
      enter_group(entries[at], record)
    end
  end
  return #entries == 2 * BITE and '+' .. entries[2 * BITE] .. ' ' .. entries[2 * BITE - 1] or '-'
end

local function keep_groups()
  local place = call('HGET', key.meta, 'deaths_seen') or '=0'
  local listed = call('ZCARD', key.deaths)
  local is_equal = call('ZCARD', key.dead) == listed
  if sub(place, 1, 1) == '=' then
    local seen_ms = tonumber(sub(place, 2))
    if is_equal and seen_ms == 0 then
      call('HSET', key.meta, 'deaths_seen', '=' .. text_of(now_ms))  -- the first day begins
      return false
    elseif is_equal and listed <= 1 or now_ms - seen_ms < (is_equal and 24 * HOUR_MS or MIN_RECORD_MS) then
      return false
    end
    place = '+-inf '
  end
  define_groups()
  if sub(place, 1, 1) == '+' then
    place = walk_dead(string.match(place, '^.(%S+) (.*)$'))
  else
    place = walk_deaths(sub(place, 2))
  end
  call('HSET', key.meta, 'deaths_seen', place)
  return not is_equal and sub(place, 1, 1) ~= '='
end

notice()
local reaped, more = reap()
-- Dead jobs come last: they may have to stay, and must not keep the purge from the others.
local visited, purged = 0, 0
for _, index in ipairs({ 'keep', 'cancelled', 'dead' }) do
  local ended = until_now(key[index], BITE - visited)
  visited = visited + #ended
  fetch(ended)
  for _, id in ipairs(ended) do
    purged = purged + purge(index, id, load(id))
  end
end
local fields = until_now(key.key_expiry)
for _, field in ipairs(fields) do
  write('ZREM', key.key_expiry, field)
  write('HDEL', key.keys, field)
end
local unwatched = until_now(key.watch_until)
for _, id in ipairs(unwatched) do
  write('ZREM', key.watch_until, id)
  write('HDEL', key.watch, id)
end
flush()
local sessions = until_now(key.forget)
for _, session in ipairs(sessions) do
  forget(session)
end
list_missing_lines()
local has_more_held = resume_rest()
local has_more_groups = keep_groups()
settle()
local has_more_history = keep_history()
local is_full = is_cut_short or has_more_held or visited == BITE or #fields == BITE or #sessions == BITE
  or #unwatched == BITE or has_more_history or has_more_groups
return { reaped, purged, (more or is_full) and 1 or 0, doomed }
