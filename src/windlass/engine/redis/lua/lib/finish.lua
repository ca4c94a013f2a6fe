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

-- The reason is followed by a blank and the fingerprint.
function ENDINGS.bury(id, record, bytes, reason, has_started)
  local why, fingerprint = string.match(reason, '^(%S*) ?(.*)$')
  move(id, record, 'bury', { reason = why, unstarted = not has_started, cause = bytes, fingerprint = fingerprint })
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

-- Apply the progress of a job, or any end of a claim except a success; return the verdict.
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
    return '1'
  end
  if record and record[LAST_TOKEN] == token and record[LAST_EVENT] == event then
    return '2'
  end
  total('stale')
  return '0'
end

-- The common part of all successes of one claim.
local function alike(session, token, has_result, ttl_ms)
  local result_ms, keep_ms = -1, now_ms + math.max(ttl_ms, MIN_RECORD_MS)
  if has_result and ttl_ms > 0 then
    result_ms = math.min(now_ms + ttl_ms, LATEST_MS)
    keep_ms = math.min(keep_ms, result_ms)  -- the purge first drops the result alone
  end
  return {
    session = session, token = token, has_result = has_result, ttl_ms = ttl_ms, result_ms = result_ms,
    keep = text_of(keep_ms),
    held = session .. '\0' .. token .. '\0',
    ended = pack_numbers(RUN_END, SUCCEEDED, SUCCEED, now_ms, #session, #token, 0, 0) .. session .. token,
  }
end

-- The record of a job without other groups than its run, after a success; nil for other jobs. The token is
-- the last text of the run.
local function succeeded_bytes(bytes, token, result, has_result, ttl_ms)
  local flags = unpack_numbers('>H', bytes)
  if flags < FLAG_RUN or flags >= 2 * FLAG_RUN then
    return nil
  end
  local run_at = #bytes - tail_size(bytes) + 1
  local _, _, _, session_size, last_size, reason_size, token_size, texts_at =
    unpack_numbers(RUN_END, bytes, run_at + RUN_START_SIZE)
  if token_size ~= #token or last_size + reason_size > 0 or sub(bytes, -2 - token_size, -3) ~= token then
    return nil
  end
  local session = sub(bytes, texts_at, texts_at + session_size - 1)
  if same.token ~= token or same.session ~= session or same.has_result ~= has_result
      or same.ttl_ms ~= ttl_ms then
    same = alike(session, token, has_result, ttl_ms)
  end
  local tail = sub(bytes, run_at, run_at + RUN_START_SIZE - 1) .. same.ended
  if same.result_ms >= 0 then
    flags = flags + FLAG_RESULT
    tail = tail .. pack_result(same.result_ms, #result <= MOST_INLINE_RESULT and result)
  end
  return pack_numbers('>H', flags) .. sub(bytes, 3, run_at - 1) .. tail .. pack_numbers('>H', #tail + 2)
end

-- Apply a success to the record. False when the token is not current.
local function succeed(id, token, result, has_result, ttl_ms)
  local bytes = bytes_of(id)
  local ended = bytes and succeeded_bytes(bytes, token, result, has_result, ttl_ms)
  if ended then
    visits[id] = same.keep
    save_bytes(id, ended)
  else
    local record = load(id)
    if not record or record[STATE] ~= 'running' or record[TOKEN] ~= token then
      return false
    end
    same = alike(record[SESSION], token, has_result, ttl_ms)
    visits[id] = same.keep
    if record[CANCEL_REQUESTED] == 1 then
      write('ZREM', key.asked, record[SESSION] .. '\0' .. id)
    end
    record[STATE], record[FINISHED_MS], record[RESULT_MS] = 'succeeded', now_ms, same.result_ms
    record[LAST_EVENT], record[LAST_TOKEN], record[TOKEN], record[REASON] = 'succeed', token, '', ''
    record[SUSPECT], record[CANCEL_REQUESTED], record[DUE_MS] = 0, 0, -1
    record[RESULT] = #result <= MOST_INLINE_RESULT and result
    save(id)
  end
  if same.result_ms >= 0 and #result > MOST_INLINE_RESULT then
    write('HSET', key.extra, 'r:' .. id, result)
  end
  write('ZREM', key.held, same.held .. id)
  write('ZADD', key.keep, same.keep, id)
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

-- Apply an outcome; return its verdict: 1 if it was applied, 2 if an earlier call has applied it, 0 if it is
-- stale.
local function finish(id, token, event, bytes, ...)
  if event == 'succeed' and succeed(id, token, bytes, ...) then
    return '1'
  end
  return end_otherwise(id, token, event, bytes, ...)
end
