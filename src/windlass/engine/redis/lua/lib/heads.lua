-- The heads of new jobs. A head is {id, task, queue, priority, run_after_ms, run_in_ms, expires_ms,
-- expires_in_ms, key, fingerprint}, -1 for no instant, false for no key.
--@include clock
--@include layout

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

-- The record of a job in its first state; `starts` is 1 when that is running, otherwise 0.
local function new_record(head, number, age, unique, starts, state, session, nonce)
  local queue, task, is_ready = head[3], head[2], state ~= 'scheduled'
  return pack_numbers(NUMBERS, starts, starts, starts == 1 and now_ms or -1, 0, 0, 0,
    is_ready and -1 or due_ms_of(head), -1, -1, 0, 0, #state, 4, 0, #session, #nonce, head[4], now_ms,
    number, number, expires_ms(head), is_ready and now_ms or -1, 0, 0, 0, 0, 0, 0, age, #queue, #task,
    #unique) .. queue .. task .. unique .. state .. 'none' .. session .. nonce
end
