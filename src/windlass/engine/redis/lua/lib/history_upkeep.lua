-- Keep the history: add the growth of the counters of enqueued jobs to the minute, take a sample of each queue,
-- add old minutes to their hour, and remove old hours.
-- KEYS: meta history
--@include history
--@include line_counters
local COLUMNS = { ready = 1, scheduled = 2, retrying = 2, running = 3, dead = 4 }
local OLDEST = 5

-- Add the jobs that were enqueued since the last minute to this one. `sampled` has, for each pair in the order of
-- `pair_names`, the number of jobs that the history has, and when it got the last of them. Counters that did not
-- grow for long are dropped, and their jobs are counted in the total.
local function add_growth(at_ms)
  local packed_names = call('HGET', key.meta, 'pair_names')
  local packed_before = packed_names and call('HGET', key.meta, 'sampled')
  local before = packed_before and cmsgpack.unpack(packed_before) or {}
  local names, sampled, known = {}, {}, 0
  for position, name in ipairs(packed_names and cmsgpack.unpack(packed_names) or {}) do
    local number = tonumber(call('HGET', key.meta, 'e:' .. name) or 0)
    local last, grown_ms = before[2 * position - 1] or 0, before[2 * position] or now_ms
    local growth = number >= last and number - last or number
    if growth == 0 and grown_ms <= now_ms - KEEP_MINUTES_MS then
      call('HDEL', key.meta, 'e:' .. name)
      call('HINCRBY', key.meta, 'enqueued', text_of(number))
    else
      if growth > 0 then
        local counts = { growth }
        for position = 2, WIDTH do
          counts[position] = 0
        end
        add_counts('1', at_ms, name_of(string.match(name, '^([^%z]*)%z(.*)$')), counts)
      end
      names[#names + 1] = name
      sampled[#sampled + 1] = number
      sampled[#sampled + 1] = growth > 0 and now_ms or grown_ms
      known = known + (name ~= '_other\0_other' and 1 or 0)
    end
  end
  if packed_names then
    call('HSET', key.meta, 'pair_names', cmsgpack.pack(names), 'pairs', text_of(known), 'sampled', cmsgpack.pack(sampled))
  end
end

-- Counters of at least MAX_PAIRS queues, if there are as many.
local function read_counters()
  if call('HLEN', key.count) <= 4 * CHUNK then
    return call('HGETALL', key.count)
  end
  local cursor, counts, queues, number = '0', {}, {}, 0
  repeat
    local found = call('HSCAN', key.count, cursor, 'COUNT', BITE)
    cursor = found[1]
    local lines = lines_in(found[2])
    for _, counted in ipairs(counters_of(lines)) do
      counts[#counts + 1] = counted
    end
    for _, line in ipairs(lines) do
      number = number + (queues[base_of(line)] and 0 or 1)
      queues[base_of(line)] = true
    end
  until cursor == '0' or number >= MAX_PAIRS
  return counts
end

local function take_samples(at_ms)
  local counts, queues, number, seen = read_counters(), {}, 0, {}
  for at = 1, #counts, 2 do
    local line, state = string.match(counts[at], '^(.*)%z(.*)$')
    local queue = line and base_of(line)
    if queue and not queues[queue] and number < MAX_PAIRS then
      queues[queue], number = { 0, 0, 0, 0, 0 }, number + 1
    end
    local numbers = queue and queues[queue]
    if numbers and not seen[counts[at]] then
      seen[counts[at]] = true
      if COLUMNS[state] then
        numbers[COLUMNS[state]] = numbers[COLUMNS[state]] + tonumber(counts[at + 1])
      end
      if state == 'ready' then
        local _, ready_for_ms = read_next_job(line)
        numbers[OLDEST] = math.max(numbers[OLDEST], ready_for_ms or 0)
      end
    end
  end
  for queue, numbers in pairs(queues) do
    local front, name = front_of('2', at_ms), name_of(queue, '')
    replace_row(find_row(front, name), front, name, numbers)
  end
end

-- Raise the numbers of a queue in an hour to those of a minute.
local function raise_sample(at_ms, name, numbers)
  local front = front_of('4', at_ms)
  local member, stored = find_row(front, name)
  if not member and number_of_rows('4', at_ms) >= MAX_PAIRS then
    return
  end
  for position, number in ipairs(stored or {}) do
    numbers[position] = math.max(numbers[position], number)
  end
  replace_row(member, front, name, numbers)
end

-- Add some old minutes to their hour; return their number.
local function roll_up(kind, add_to_hour)
  local old = call('ZRANGEBYLEX', key.history, '[' .. kind, '(' .. front_of(kind, now_ms - KEEP_MINUTES_MS), 'LIMIT', 0, BITE)
  for _, member in ipairs(old) do
    local at_ms, queue_size = struct.unpack('>I6H', member, 2)
    local name_end = 11 + queue_size + struct.unpack('>H', member, 10 + queue_size)
    local numbers = cmsgpack.unpack(sub(member, name_end + 1))
    call('ZREM', key.history, member)
    add_to_hour(at_ms - at_ms % HOUR_MS, sub(member, 8, name_end), numbers)
  end
  return #old
end

-- Remove some rows that are too old or, after the clock was set back, too far ahead; return their number.
local function forget_rows(kind)
  local first, last = front_of(kind, now_ms - KEEP_HOURS_MS), front_of(kind, now_ms + KEEP_HOURS_MS + 1)
  local old = call('ZRANGEBYLEX', key.history, '[' .. kind, '(' .. first, 'LIMIT', 0, BITE)
  local ahead = call('ZRANGEBYLEX', key.history, '[' .. last, '(' .. tostring(kind + 1), 'LIMIT', 0, BITE)
  for _, members in ipairs({ old, ahead }) do
    if members[1] then
      call('ZREM', key.history, unpack(members))
    end
  end
  return math.max(#old, #ahead)
end

-- Do one bounded batch; return whether there may be more.
local function keep_history()
  local at_ms = now_ms - now_ms % MINUTE_MS
  if call('HGET', key.meta, 'minute') ~= text_of(at_ms) then
    add_growth(at_ms)
    take_samples(at_ms)
    call('HSET', key.meta, 'minute', text_of(at_ms))
  end
  local most = 0
  for kind = 1, 4 do
    most = math.max(most, forget_rows(tostring(kind)))
  end
  most = math.max(most, roll_up('1', function(...) add_counts('3', ...) end), roll_up('2', raise_sample))
  return most == BITE
end
