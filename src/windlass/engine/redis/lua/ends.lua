-- Read the state of jobs and, for jobs that have ended, their outcome; never the payload. For jobs that
-- have not ended, register the waiting caller in the same step, so that no end is lost in between.
-- KEYS: meta extra watch watch_until
-- ARGV: 1-3 clock, 4 a channel ("" = only read), 5 lifetime of the registration in ms, then ids
-- Returns: {now_ms, for each id nothing or {record, result, newest entry of the history}}
--@include records
-- At most this many callers are notified of one end; with more, the first one is forgotten.
local MOST_WATCHERS = 100

local function read_end(id, record)
  if record[STATE] == 'succeeded' then
    return record[RESULT_MS] >= 0 and (record[RESULT] or call('HGET', key.extra, 'r:' .. id)), false
  elseif record[STATE] == 'dead' and record[FAILURES] > 0 then
    return false, call('HGET', key.extra, 'f:' .. (record[FAILURES] - 1) % MAX_FAILURES .. ':' .. id)
  end
  return false, false
end

local function add_watcher(channels, channel)
  for _, known in ipairs(channels) do
    if known == channel then
      return false
    end
  end
  channels[#channels + 1] = channel
  if #channels > MOST_WATCHERS then
    table.remove(channels, 1)
  end
  return true
end

local function watch(ids, channel, until_ms)
  local found = read_fields(key.watch, ids)
  for number, id in ipairs(ids) do
    local channels = found[number] and cmsgpack.unpack(found[number]) or {}
    if add_watcher(channels, channel) then
      call('HSET', key.watch, id, cmsgpack.pack(channels))
    end
    call('ZADD', key.watch_until, until_ms, id)
  end
end

local ids = { unpack(ARGV, 6) }
fetch(ids)
local reply, unended = { now_ms }, {}
for number, id in ipairs(ids) do
  local record = load(id)
  if record then
    reply[number + 1] = { packed[id], read_end(id, record) }
    if record[FINISHED_MS] < 0 then
      unended[#unended + 1] = id
    end
  else
    reply[number + 1] = false
  end
end
if ARGV[4] ~= '' and #unended > 0 then
  watch(unended, ARGV[4], now_ms + tonumber(ARGV[5]))
end
return reply
