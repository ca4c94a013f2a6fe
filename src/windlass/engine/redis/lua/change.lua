-- Change jobs that wait: their call, their queue, or when they are due.
-- ARGV: 1-3 clock, then for each job its edit (id, the revision that the caller saw or "", the queue or "",
--       run_in_ms or -1, whether it has a new call, whether its call must be the given one), the new call,
--       and the given one
-- Returns: for each job "done", "refused" or "unknown"
--@include unique

-- As `JobRecord.revision` has it.
local function revision_of(record)
  return table.concat({
    record[STATE], text_of(record[STARTS]), text_of(record[STRAYS]),
    record[HOLD] == 'paused' and '-1' or text_of(record[DUE_MS]), record[QUEUE],
  }, ' ')
end

-- The old call becomes an entry of the history.
local function change_call(id, record, body)
  remember(id, record, 'revive', read_call(id, record))
  write_call(id, record, body)
end

-- A job that stays in line keeps its place. One that leaves its queue takes the age of the new one.
local function move_to(record, queue, run_in_ms)
  local was_in_line, is_same = record[STATE] == 'ready', base_of(queue) == base_of(record[QUEUE])
  record[QUEUE] = queue
  if run_in_ms > 0 then
    record[HOLD], record[DUE_MS] = 'none', math.min(now_ms + run_in_ms, LATEST_MS)
    if was_in_line then
      record[STATE], record[READY_MS], record[AGE] = 'scheduled', -1, 0
    end
    return
  elseif run_in_ms == 0 then
    record[STATE], record[HOLD], record[DUE_MS] = 'ready', 'none', -1
    if not was_in_line then
      record[PLACE], record[READY_MS], record[AGE] = next_number(), now_ms, take_age(queue)
    end
  end
  if was_in_line and not is_same then
    record[AGE] = take_age(queue)
  end
end

local function change(id, record, edit, body, seen_body)
  if not record then
    return 'unknown'
  elseif not QUEUED[record[STATE]] or edit[2] ~= '' and edit[2] ~= revision_of(record)
      or edit[6] and seen_body ~= read_call(id, record) then
    return 'refused'
  end
  leave(id, record)
  count(record[QUEUE], record[STATE], -1)
  if edit[5] then
    change_call(id, record, body)
  end
  move_to(record, edit[3] ~= '' and edit[3] or record[QUEUE], edit[4])
  enter(id, record)
  count(record[QUEUE], record[STATE], 1)
  return 'done'
end

local edits, ids, reply = {}, {}, {}
for at = 4, #ARGV, 3 do
  edits[#edits + 1] = cmsgpack.unpack(ARGV[at])
  ids[#ids + 1] = edits[#edits][1]
end
fetch(ids)
for number, id in ipairs(ids) do
  flush()  -- a job may leave an index that another one entered: gathered writes would be mixed up
  reply[number] = change(id, load(id), edits[number], ARGV[3 * number + 2], ARGV[3 * number + 3])
end
settle()
return reply
