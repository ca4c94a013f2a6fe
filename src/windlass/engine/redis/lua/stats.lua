-- Read the counters and the next job of every line. Many counters take several batches; the counters of
-- one line are always of one instant.
-- KEYS: count total ready meta
-- ARGV: 1-3 clock, 4 cursor ("0" = begin)
-- Returns: {next cursor ("0" = at the end), counts, totals (only in the first batch), {line,
--          rank, how long the next job has been ready, ...}, {pair of queue and task, number of enqueued
--          jobs, ...} (only in the first batch)}
--@include line_counters

local function read_totals()
  local totals = call('HGETALL', key.total)
  local enqueued = call('HGET', key.meta, 'enqueued')
  if enqueued then
    totals[#totals + 1] = 'enqueued'
    totals[#totals + 1] = enqueued
  end
  return totals
end

local function read_pairs()
  local packed_names, found = call('HGET', key.meta, 'pair_names'), {}
  for _, name in ipairs(packed_names and cmsgpack.unpack(packed_names) or {}) do
    found[#found + 1] = name
    found[#found + 1] = call('HGET', key.meta, 'e:' .. name) or '0'
  end
  return found
end

local cursor, counts, lines = '0'
if ARGV[4] == '0' and call('HLEN', key.count) <= CHUNK then
  counts = call('HGETALL', key.count)
  lines = lines_in(counts)
else
  local found = call('HSCAN', key.count, ARGV[4], 'COUNT', BITE / 2)
  cursor, lines = found[1], lines_in(found[2])
  counts = counters_of(lines)
end
local next_jobs = {}
for _, line in ipairs(lines) do
  local rank, ready_for_ms = read_next_job(line)
  if rank then
    next_jobs[#next_jobs + 1] = line
    next_jobs[#next_jobs + 1] = rank
    next_jobs[#next_jobs + 1] = ready_for_ms
  end
end
local is_first = ARGV[4] == '0'
return { cursor, counts, is_first and read_totals() or {}, next_jobs, is_first and read_pairs() or {} }
