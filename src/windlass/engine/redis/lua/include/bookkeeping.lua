-- What a call leaves behind besides records: counters, totals, signs of life, wake-ups.
-- KEYS: meta count total wait
--@include records
--@include meta
--@include line_index
--@include waiters
local changed_queues = {}  -- queue -> true when its settings were changed
local counts, totals = {}, {}
local enqueued = 0  -- a total that is kept beside the sequence: most calls that change one change both
local made_ready = 0  -- how many waiters have a reason to look

local function base_of(line)
  local plus = string.find(line, '+', 1, true)
  return plus and sub(line, 1, plus - 1) or line
end

-- How old the queue of a line is by now.
local function age_now(line)
  local own = has_settings and settings[base_of(line)]
  if not own then
    return 0
  end
  local passed_ms = now_ms - own[QUEUE_SINCE_MS]
  if own[QUEUE_AGEING_MS] > 0 and passed_ms > 0 then
    return own[QUEUE_AGE] + math.floor(passed_ms / own[QUEUE_AGEING_MS])
  end
  return own[QUEUE_AGE]
end

-- The same for a job that takes its place; the queue keeps it, whatever the clock does.
local function take_age(line)
  local age = age_now(line)
  if age > 0 then
    local own = settings[base_of(line)]
    if age > own[QUEUE_AGE] then
      changed_queues[base_of(line)] = true
    end
    own[QUEUE_SINCE_MS] = own[QUEUE_SINCE_MS] + (age - own[QUEUE_AGE]) * own[QUEUE_AGEING_MS]
    own[QUEUE_AGE] = age
  end
  return age
end

local function count(queue, state, by)
  local field = queue .. '\0' .. state
  counts[field] = (counts[field] or 0) + by
end

local function total(name, by)
  totals[name] = (totals[name] or 0) + (by or 1)
end

local recount = {}  -- counter -> by how much those change that were counted anew

if recounted then
  local function is_counted(id)
    for at = 1, math.min(#id, #recounted) do
      local one, last = string.byte(id, at), string.byte(recounted, at)
      if one ~= last then
        return one < last
      end
    end
    return #id <= #recounted
  end

  local function recount_one(bytes, by)
    local field = counter_of(bytes)
    recount[field] = (recount[field] or 0) + by
  end

  function note_change(id, before, bytes)
    if is_counted(id) then
      if before then
        recount_one(before, -1)
      end
      if bytes then
        recount_one(bytes, 1)
      end
    end
  end
end

-- Drop an entry of an index that leads to no job, or to one that does not belong there, and count it.
local function drop(name, member)
  write('ZREM', name, member)
  total('orphans')
end

-- Wake as many waiters as there is work for. Whoever is woken is taken off the list, so that two calls
-- never spend their wake-ups on the same one. Those that run jobs alone are woken on the way: the work
-- may not be theirs. Those with a channel alone are on other lists too: all begin at another place in
-- the list, lest they all wake the same one. Without the right to publish, looking by itself remains.
local function ring(number)
  local wanted = math.min(number, CHUNK)
  local found, rung = waiters(0, wanted + MOST_ALONE), 0
  if #found >= wanted and sub(found[1], 1, 1) ~= '=' then
    local waiting = call('ZCOUNT', key.wait, '(' .. text_of(server_ms), '+inf')
    found = waiters(math.min(call('TIME')[2] % waiting, waiting - wanted), wanted)
  end
  for _, waiter in ipairs(found) do
    local channel, is_alone = read_waiter(waiter)
    call('ZREM', key.wait, waiter)
    redis.pcall('PUBLISH', channel, '')
    rung = rung + (is_alone and 0 or 1)
    if rung == wanted then
      return
    end
  end
end

local function add(name, field, by)
  if by ~= 0 and call('HINCRBY', name, field, by) == 0 then
    call('HDEL', name, field)
  end
end

--@seldom save_settings
local function save_settings()
  local number, aged_ms = 0, tonumber(call('HGET', key.meta, 'aged') or 0)
  for queue in pairs(changed_queues) do
    if settings[queue] then
      if settings[queue][QUEUE_SINCE_MS] > aged_ms then
        aged_ms = settings[queue][QUEUE_SINCE_MS]
        call('HSET', key.meta, 'aged', text_of(aged_ms))
      end
      number = number + call('HSET', key.meta, 'q:' .. queue, cmsgpack.pack(settings[queue]))
    else
      number = number - call('HDEL', key.meta, 'q:' .. queue)
    end
  end
  add(key.meta, 'queues', number)
end
--@end

-- The last thing that a call does. A call that found nothing to do writes nothing.
local function settle()
  flush()
  for field, by in pairs(counts) do
    add(key.count, field, by)
  end
  for name, by in pairs(totals) do
    add(key.total, name, by)
  end
  for field, by in pairs(recount) do
    add(key.meta, 'c:' .. field, by)
  end
  if enqueued > 0 then
    call('HSET', key.meta, 'sequence', text_of(sequence), 'enqueued', text_of(stored_enqueued + enqueued))
  elseif sequence ~= stored_sequence then
    call('HSET', key.meta, 'sequence', text_of(sequence))
  end
  if last_seen_ms ~= stored_last_seen_ms or reap_after_ms ~= stored_reap_after_ms then
    call('HSET', key.meta, 'last_seen', text_of(last_seen_ms), 'reap_after', text_of(reap_after_ms))
  end
  if next(changed_queues) then
    save_settings()
  end
  if made_ready > 0 and not nobody_waits then
    ring(made_ready)
  end
end
