-- Read the counters and the next job of every line. Many counters take several batches; the counters of
-- one line are always of one instant.
-- KEYS: count total ready meta
-- ARGV: 1-3 clock, 4 cursor ("0" = begin)
-- Returns: {next cursor ("0" = at the end), counts, totals (only in the first batch), {line,
--          rank, how long the next job has been ready, ...}}
--@include records
local STATES = { 'waiting', 'scheduled', 'ready', 'running', 'retrying', 'succeeded', 'dead', 'cancelled' }

-- Of the next job in line; members of `ready` that point to no job are skipped.
local function add_head(heads, line)
  local from, to = '[0' .. line .. '\0', '(0' .. line .. '\1'
  for _, member in ipairs(call('ZRANGEBYLEX', key.ready, from, to, 'LIMIT', 0, 3)) do
    local record = load(string.sub(member, #line + 14))
    if record then
      heads[#heads + 1] = line
      heads[#heads + 1] = record[AGE] - record[PRIORITY]
      heads[#heads + 1] = math.max(0, now_ms - record[READY_MS])
      return
    end
  end
end

-- The lines of a batch of counters.
local function lines_in(fields)
  local lines, seen = {}, {}
  for at = 1, #fields, 2 do
    local line = string.match(fields[at], '^(.*)%z')
    if line and not seen[line] then
      seen[line] = true
      lines[#lines + 1] = line
    end
  end
  return lines
end

local function counters_of(lines)
  local counts = {}
  for _, line in ipairs(lines) do
    local fields = {}
    for number, state in ipairs(STATES) do
      fields[number] = line .. '\0' .. state
    end
    for number, counted in ipairs(call('HMGET', key.count, unpack(fields))) do
      if counted then
        counts[#counts + 1] = fields[number]
        counts[#counts + 1] = counted
      end
    end
  end
  return counts
end

local function read_totals()
  local totals = call('HGETALL', key.total)
  local enqueued = call('HGET', key.meta, 'enqueued')
  if enqueued then
    totals[#totals + 1] = 'enqueued'
    totals[#totals + 1] = enqueued
  end
  return totals
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
local heads = {}
for _, line in ipairs(lines) do
  add_head(heads, line)
end
return { cursor, counts, ARGV[4] == '0' and read_totals() or {}, heads }
