-- The settings of queues, changed or only read.
-- ARGV: 1-3 clock, 4 queue ("" = change nothing), then what is empty where it stays as it is:
--       5 paused ("1" or "0"), 6 period of ageing in ms (0 = none), 7 how many may wait (0 = any
--       number), and 8 how many of them in this partition
-- Returns: the settings of all queues that have others than the usual ones, packed ("" = none)
-- KEYS: ready
--@include bookkeeping

-- The lines of a queue: its own, and those that require labels and have something.
local function lines_in(queue)
  local lines = { queue }
  for _, suspects in ipairs({ '0', '1' }) do
    local from, to = '[' .. suspects .. queue .. '+', '(' .. suspects .. queue .. ','
    local head = call('ZRANGEBYLEX', key.ready, from, to, 'LIMIT', 0, 1)[1]
    while head do
      local line = sub(head, 2, string.find(head, '\0', 2, true) - 1)
      lines[#lines + 1] = line
      head = call('ZRANGEBYLEX', key.ready, '(' .. suspects .. line .. '\1', to, 'LIMIT', 0, 1)[1]
    end
  end
  return lines
end

local queue, paused, ageing_ms = ARGV[4], ARGV[5], ARGV[6]
if queue ~= '' then
  local own = settings[queue] or { false, 0, 0, 0, 0, 0 }
  settings[queue], has_settings, is_changed = own, true, true
  if paused ~= '' then
    own[QUEUE_PAUSED] = paused == '1'
  end
  if paused == '0' then
    for _, line in ipairs(lines_in(queue)) do
      made_ready['0' .. line], made_ready['1' .. line] = CHUNK, CHUNK
    end
  end
  if ageing_ms ~= '' then
    take_age(queue)
    own[QUEUE_AGEING_MS], own[QUEUE_SINCE_MS] = tonumber(ageing_ms), now_ms
  end
  if ARGV[7] ~= '' then
    own[QUEUE_BOUND], own[QUEUE_BOUND_HERE] = tonumber(ARGV[7]), tonumber(ARGV[8])
  end
  if not own[QUEUE_PAUSED] and own[QUEUE_AGEING_MS] + own[QUEUE_AGE] + own[QUEUE_BOUND] == 0 then
    settings[queue] = nil
  end
end
settle()
return call('HGET', key.meta, 'queues') or ''
