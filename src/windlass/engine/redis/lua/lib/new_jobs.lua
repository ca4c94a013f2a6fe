-- New jobs, as the client sends them. A new job is {id, task, queue, priority, run_after_ms, run_in_ms,
-- expires_ms, expires_in_ms, key, fingerprint}, -1 for no instant, false for no key. Its call is sent apart.
--@include records

local function due_ms_of(new_job)
  return math.max(new_job[5], now_ms + new_job[6])
end

local function expires_ms(new_job)
  if new_job[8] < 0 then
    return new_job[7]
  end
  local relative_ms = now_ms + new_job[8]
  return new_job[7] < 0 and relative_ms or math.min(new_job[7], relative_ms)
end

-- The record of a new job, ready or scheduled. `unique` is its part about the unique key.
local function record_of(new_job, number, age, unique, body)
  define_codec()
  local record, due_ms = new_record(number, now_ms, new_job[4], new_job[3], new_job[2]), due_ms_of(new_job)
  record[EXPIRES_MS], record[UNIQUE], record[AGE] = expires_ms(new_job), unique, age
  record[CALL] = #body <= MOST_INLINE_CALL and body
  if due_ms > now_ms then
    record[STATE], record[DUE_MS], record[READY_MS] = 'scheduled', due_ms, -1
  end
  return record
end
