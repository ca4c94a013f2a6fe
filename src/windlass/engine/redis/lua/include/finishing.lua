-- Ending claims, each fenced by its token.
--@include moves

local function stray_delay_ms(strays)
  return math.min(STRAY_BASE_MS * 2 ^ math.min(strays, 10), STRAY_CAP_MS)
end

-- Each takes the job, its record, the head {id, token, event, ...} and the bytes of an outcome.
local ENDINGS = {}

function ENDINGS.succeed(id, record, head, bytes)
  local has_result, ttl_ms = head[4], head[5]
  local keep_ms = now_ms + math.max(ttl_ms, MIN_RECORD_MS)
  record[RESULT_MS] = -1
  if has_result and ttl_ms > 0 then
    record[RESULT_MS] = now_ms + ttl_ms
    keep_ms = math.min(keep_ms, record[RESULT_MS])  -- the purge first drops the result alone
    write('HSET', key.extra, 'r:' .. id, bytes)
  end
  move(id, record, 'succeed', { keep_ms = keep_ms })
  record[CANCEL_REQUESTED] = 0
end

function ENDINGS.retry(id, record, head, bytes)
  move(id, record, 'retry', { delay_ms = head[4], cause = bytes })
end

function ENDINGS.bury(id, record, head, bytes)
  move(id, record, 'bury', { reason = head[4], unstarted = not head[5], cause = bytes })
end

function ENDINGS.release(id, record, head)
  move(id, record, 'release', { unstarted = not head[4], alone = head[5] })
end

function ENDINGS.snooze(id, record, head)
  move(id, record, 'snooze', { delay_ms = head[4] })
end

function ENDINGS.unroutable(id, record)
  move(id, record, 'unroutable', { delay_ms = stray_delay_ms(record[STRAYS]) })
end

-- Whether an outcome was accepted, now or by an earlier call; otherwise it is stale.
local function finish(head, bytes)
  local id, token, event = head[1], head[2], head[3]
  local record = load(id)
  if record and record[TOKEN] == token then
    if event == 'progress' then
      record[HAS_PROGRESS] = 1
      write('HSET', key.extra, 'p:' .. id, bytes)
      save(id)
    else
      record[LAST_TOKEN], record[LAST_EVENT] = token, event
      ENDINGS[event](id, record, head, bytes)
    end
    return true
  end
  if record and record[LAST_TOKEN] == token and record[LAST_EVENT] == event then
    return true
  end
  total('stale')
  return false
end
