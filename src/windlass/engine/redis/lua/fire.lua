-- Change schedules, each only if it still has the expected revision, and store the jobs of due occurrences.
-- KEYS: schedule schedule_names schedule_due
-- ARGV: 1-3 clock, then for each change its head, its record, its note, its body, and for each of its
--       jobs its fields, as in `new_jobs`, and the body. A head is {name, expected revision, new revision,
--       due_ms (-1 = never), whether there is a body, ids to cancel, number of jobs}.
-- Returns: for each change 1 if this call or an earlier call made it, otherwise 0
--@adds
--@include put
--@include cancellation

-- First read everything: the changes, the revisions that are stored, and all jobs.
local changes, fields, ids = {}, {}, {}
local at = 4
while at <= #ARGV do
  local head = cmsgpack.unpack(ARGV[at])
  local change = { head = head, record = ARGV[at + 1], note = ARGV[at + 2], body = ARGV[at + 3], jobs = {} }
  at = at + 4
  for number = 1, head[7] do
    local job = { cmsgpack.unpack(ARGV[at]), ARGV[at + 1] }
    change.jobs[number] = job
    ids[#ids + 1] = job[1][1]
    at = at + 2
  end
  for _, id in ipairs(head[6]) do
    ids[#ids + 1] = id
  end
  changes[#changes + 1] = change
  fields[#fields + 1] = 'r:' .. head[1]
end
fetch(ids)
local revisions = {}
for number, packed_record in ipairs(read_fields(key.schedule, fields)) do
  revisions[changes[number].head[1]] = packed_record and cmsgpack.unpack(packed_record)[1] or ''
end

local function save_schedule(change)
  local name, due_ms, has_body = change.head[1], change.head[4], change.head[5]
  write('HSET', key.schedule, 'r:' .. name, change.record)
  write('HSET', key.schedule, 'n:' .. name, change.note)
  if has_body then
    write('HSET', key.schedule, 'b:' .. name, change.body)
  end
  write('ZADD', key.schedule_names, '0', name)
  if due_ms >= 0 then
    write('ZADD', key.schedule_due, text_of(due_ms), name)
  else
    write('ZREM', key.schedule_due, name)
  end
end

local function make(change)
  local name, expected, revision = change.head[1], change.head[2], change.head[3]
  if revisions[name] == revision then
    return 1
  end
  if revisions[name] ~= expected then
    return 0
  end
  revisions[name] = revision
  save_schedule(change)
  for _, id in ipairs(change.head[6]) do
    cancel(id)
  end
  for _, job in ipairs(change.jobs) do
    if not find_known(job[1]) then
      store(job[1], job[2], '')  -- into a full queue too: no caller could retry a refused job
    end
  end
  flush()  -- the next change may remove what this one adds
  return 1
end

local reply = {}
for number, change in ipairs(changes) do
  reply[number] = make(change)
end
settle_jobs()
return reply
