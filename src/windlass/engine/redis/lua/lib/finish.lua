-- End claims, each fenced by its token.
--@include moves

local succeeded = {}  -- queue -> how many
local same = {}       -- what the last success has in common with others

local function stray_delay_ms(strays)
  return math.min(STRAY_BASE_MS * 2 ^ math.min(strays, 10), STRAY_CAP_MS)
end

-- Each takes the job, its record, the bytes of an outcome and its other fields.
local ENDINGS = {}

function ENDINGS.retry(id, record, bytes, delay_ms)
  move(id, record, 'retry', { delay_ms = delay_ms, cause = bytes })
end

function ENDINGS.bury(id, record, bytes, reason, has_started)
  move(id, record, 'bury', { reason = reason, unstarted = not has_started, cause = bytes })
end

function ENDINGS.release(id, record, _, has_started, is_alone)
  move(id, record, 'release', { unstarted = not has_started, alone = is_alone })
end

function ENDINGS.snooze(id, record, _, delay_ms)
  move(id, record, 'snooze', { delay_ms = delay_ms })
end

function ENDINGS.unroutable(id, record, why)
  move(id, record, 'unroutable', { delay_ms = stray_delay_ms(record[STRAYS]) })
  if why ~= '' and record[HOLD] == 'unroutable' then
    record[HAS_PROGRESS] = 2
    write('HSET', key.extra, 'p:' .. id, why)
  elseif record[HAS_PROGRESS] ~= 0 then
    record[HAS_PROGRESS] = 0
    write('HDEL', key.extra, 'p:' .. id)
  end
end

-- Apply the progress of a job, or any end of a claim except a success; false when it is stale.
local function end_otherwise(id, token, event, bytes, ...)
  local record = load(id)
  if record and record[TOKEN] == token and event ~= 'succeed' then
    if event == 'progress' then
      record[HAS_PROGRESS] = 1
      write('HSET', key.extra, 'p:' .. id, bytes)
      save(id)
    else
      record[LAST_TOKEN], record[LAST_EVENT] = token, event
      ENDINGS[event](id, record, bytes, ...)
    end
    return true
  end
  if record and record[LAST_TOKEN] == token and record[LAST_EVENT] == event then
    return true
  end
  total('stale')
  return false
end

-- The common part of all successes of one claim.
local function alike(session, token, has_result, ttl_ms)
  local result_ms, keep_ms = -1, now_ms + math.max(ttl_ms, MIN_RECORD_MS)
  if has_result and ttl_ms > 0 then
    result_ms = math.min(now_ms + ttl_ms, LATEST_MS)
    keep_ms = math.min(keep_ms, result_ms)  -- the purge first drops the result alone
  end
  return {
    session = session, token = token, has_result = has_result, ttl_ms = ttl_ms,
    stores_result = result_ms >= 0,
    keep = text_of(keep_ms),
    held = session .. '\0' .. token .. '\0',
    middle = pack_numbers('>' .. MARKS .. SIZES, 0, 0, -1, now_ms, result_ms,
      7, #token, 9, 4, 0, #session, 0),
    tail = 'succeed' .. token .. 'succeedednone' .. session,
  }
end

-- Apply a success to the bytes of the record. False when the token is not current.
local function succeed(id, token, result, has_result, ttl_ms)
  local bytes = bytes_of(id)
  if not bytes then
    return false
  end
  local event_size, last_size, state_size, hold_size, reason_size, session_size, token_size =
    unpack_numbers('>BHBBBHH', bytes, SIZES_AT)
  if token_size ~= #token or sub(bytes, -token_size) ~= token then
    return false
  end
  local session = sub(bytes, -token_size - session_size, -token_size - 1)
  if same.token ~= token or same.session ~= session or same.has_result ~= has_result
      or same.ttl_ms ~= ttl_ms then
    same = alike(session, token, has_result, ttl_ms)
  end
  write('ZREM', key.held, same.held .. id)
  if string.byte(bytes, ASKED_AT) == 1 then
    write('ZREM', key.asked, session .. '\0' .. id)
  end
  if same.stores_result then
    write('HSET', key.extra, 'r:' .. id, result)
  end
  write('ZADD', key.keep, same.keep, id)
  visits[id] = same.keep
  local texts = event_size + last_size + state_size + hold_size + reason_size + session_size + token_size
  save_bytes(id, sub(bytes, 1, MARKS_AT - 1) .. same.middle .. sub(bytes, REST_AT, -texts - 1) .. same.tail)
  local queue = queue_of(bytes)
  succeeded[queue] = (succeeded[queue] or 0) + 1
  ends[#ends + 1] = id
  return true
end

-- The bookkeeping for all successes of a call.
local function count_successes()
  for queue, number in pairs(succeeded) do
    count(queue, 'running', -number)
    count(queue, 'succeeded', number)
    total('succeeded', number)
  end
end

-- Whether an outcome was accepted, now or by an earlier call; otherwise it is stale.
local function finish(id, token, event, bytes, ...)
  if event == 'succeed' and succeed(id, token, bytes, ...) then
    return true
  end
  return end_otherwise(id, token, event, bytes, ...)
end
