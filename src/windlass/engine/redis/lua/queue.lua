-- Change or read the settings of queues.
-- ARGV: 1-3 clock, 4 queue ("" = change nothing), then settings, empty to keep the stored value:
--       5 paused ("1" or "0"), 6 period of ageing in ms (0 = none), 7 how many may wait (0 = no
--       limit), 8 how many of them in this partition, and 9 the least age
-- Returns: if nothing is changed, the settings of all queues other than the default, packed
--          ("" = none)
--@include line

-- The lines of a queue with ready jobs, with their mark of suspects.
local function marks_of(name)
  local marks = {}
  for _, suspects in ipairs({ '0', '1' }) do
    local from, to = label_bounds(suspects, name)
    for _, line in ipairs({ name, unpack(lines_between(suspects, from, to)) }) do
      marks[#marks + 1] = suspects .. line
    end
  end
  return marks
end

-- The entries of these lines in `lines`, with the current settings.
local function entries_of(marks)
  local entries = {}
  for _, mark in ipairs(marks) do
    local first = first_of(mark)
    entries[#entries + 1] = first and entry_of(mark, first) or nil
  end
  return entries
end

local queue, paused, ageing_ms = ARGV[4], ARGV[5], ARGV[6]
if queue ~= '' then
  local marks = marks_of(queue)
  local before = entries_of(marks)
  local own = settings[queue] or { false, 0, 0, 0, 0, 0 }
  settings[queue], has_settings, changed_queues[queue] = own, true, true
  if paused ~= '' then
    own[QUEUE_PAUSED] = paused == '1'
  end
  if paused == '0' then
    for _, mark in ipairs(marks) do
      made_ready[mark] = CHUNK
    end
  end
  if ageing_ms ~= '' then
    take_age(queue)
    own[QUEUE_AGEING_MS], own[QUEUE_SINCE_MS] = tonumber(ageing_ms), now_ms
    if own[QUEUE_AGEING_MS] > 0 then
      own[QUEUE_SINCE_MS] = now_ms - now_ms % own[QUEUE_AGEING_MS]  -- in phase with its group
    end
  end
  if ARGV[7] ~= '' then
    own[QUEUE_BOUND], own[QUEUE_BOUND_HERE] = tonumber(ARGV[7]), tonumber(ARGV[8])
  end
  if ARGV[9] ~= '' then
    take_age(queue)
    own[QUEUE_AGE] = math.max(own[QUEUE_AGE], tonumber(ARGV[9]))
  end
  if not own[QUEUE_PAUSED] and own[QUEUE_AGEING_MS] + own[QUEUE_AGE] + own[QUEUE_BOUND] == 0 then
    settings[queue] = false
  end
  for _, entry in ipairs(before) do
    call('ZREM', key.lines, entry)
  end
  for _, entry in ipairs(entries_of(marks)) do
    call('ZADD', key.lines, '0', entry)
  end
end
settle()
if queue ~= '' or not has_settings then
  return ''
end
local found, fields = {}, call('HGETALL', key.meta)
for at = 1, #fields, 2 do
  if sub(fields[at], 1, 2) == 'q:' then
    found[sub(fields[at], 3)] = cmsgpack.unpack(fields[at + 1])
  end
end
return cmsgpack.pack(found)
