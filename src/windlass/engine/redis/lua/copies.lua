-- Read copies of some jobs.
-- KEYS: keep cancelled dead
-- ARGV: 1-3 clock, then ids
-- Returns: {now_ms, for each id nothing or {its data, as in `whole_jobs`; of an ended job the next visit of the
--          purge, otherwise ""; the age of its queue now; name and value of each step}}
--@include bookkeeping
--@include whole_jobs
--@include steps

local function list_steps(id)
  local found = {}
  for _, member in ipairs(steps_of(id)) do
    found[#found + 1], found[#found + 2] = read_step(member)
  end
  return found
end

local ids, reply = { unpack(ARGV, 4) }, { now_ms }
for number, parts in ipairs(read_jobs(ids)) do
  local record = parts and load(ids[number])
  reply[number + 1] = record and {
    parts,
    FINAL[record[STATE]] and call('ZSCORE', key[FINAL[record[STATE]]], ids[number]) or '',
    age_now(record[QUEUE]),
    list_steps(ids[number]),
  }
end
return reply
