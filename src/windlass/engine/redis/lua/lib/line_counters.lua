-- Read the counters of lines, and the next job of each.
-- KEYS: count ready
--@include records
local STATES = { 'waiting', 'scheduled', 'ready', 'running', 'retrying', 'succeeded', 'dead', 'cancelled' }

-- The rank of the next job in line, and how long it has been ready; members of `ready` that point to no job are
-- skipped.
local function read_next_job(line)
  local from, to = '[0' .. line .. '\0', '(0' .. line .. '\1'
  for _, member in ipairs(call('ZRANGEBYLEX', key.ready, from, to, 'LIMIT', 0, 3)) do
    local record = load(sub(member, #line + 14))
    if record then
      return record[AGE] - record[PRIORITY], math.max(0, now_ms - record[READY_MS])
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
