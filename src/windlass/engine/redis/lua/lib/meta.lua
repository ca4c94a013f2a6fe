-- The state of a partition: the sequence, signs of life, the settings of queues.
-- KEYS: meta
--@include clock
local stored
if first_counter then
  stored = call('HMGET', key.meta, 'sequence', 'last_seen', 'reap_after', 'queues', 'leases', 'recounted', first_counter)
else
  stored = call('HMGET', key.meta, 'sequence', 'last_seen', 'reap_after', 'queues', 'leases', 'recounted')
end
local stored_sequence, stored_last_seen_ms = tonumber(stored[1] or 0), tonumber(stored[2] or -1)
local stored_reap_after_ms = tonumber(stored[3] or 0)
local sequence, last_seen_ms, reap_after_ms = stored_sequence, stored_last_seen_ms, stored_reap_after_ms
-- The longest lease of recent callers, which only `notice` reads and changes.
local stored_leases = stored[5] or '0 0 0'
local leases = stored_leases
-- Queues with settings other than the default: queue -> settings, read at the first use. Other queues
-- have false or nil. `queues` is the number of queues with settings.
local has_settings = stored[4]
local settings = {}
if has_settings then
  setmetatable(settings, { __index = function(known, queue)
    local found = call('HGET', key.meta, 'q:' .. queue)
    local own = found and cmsgpack.unpack(found) or false
    known[queue] = own
    return own
  end })
end
local QUEUE_PAUSED, QUEUE_AGEING_MS, QUEUE_AGE, QUEUE_SINCE_MS = 1, 2, 3, 4
local QUEUE_BOUND, QUEUE_BOUND_HERE = 5, 6  -- of the whole queue, and of this partition

-- Paused tasks are stored among the queues, each after a zero.
local function is_task_paused(task)
  local own = has_settings and settings['\0' .. task]
  return own and own[QUEUE_PAUSED]
end

-- While the counters are recounted, the id up to which records were counted: see `repair`.
local recounted = stored[6]

local function next_number()
  sequence = sequence + 1
  return sequence
end
--@nest
