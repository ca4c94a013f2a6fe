-- The heads of new jobs. A head is {id, task, queue, priority, run_after_ms, run_in_ms, expires_ms,
-- expires_in_ms, key, fingerprint}, -1 for no instant, false for no key.
--@include records

local function due_ms_of(head)
  return math.max(head[5], now_ms + head[6])
end

local function expires_ms(head)
  if head[8] < 0 then
    return head[7]
  end
  local relative_ms = now_ms + head[8]
  return head[7] < 0 and relative_ms or math.min(head[7], relative_ms)
end

-- The record of a new job, ready or scheduled. `unique` is its part about the unique key.
local function record_of(head, number, age, unique, body)
  define_codec()
  local record, due_ms = new_record(number, now_ms, head[4], head[3], head[2]), due_ms_of(head)
  record[EXPIRES_MS], record[UNIQUE], record[AGE] = expires_ms(head), unique, age
  record[CALL] = #body <= MOST_INLINE_CALL and body
  if due_ms > now_ms then
    record[STATE], record[DUE_MS], record[READY_MS] = 'scheduled', due_ms, -1
  end
  return record
end
