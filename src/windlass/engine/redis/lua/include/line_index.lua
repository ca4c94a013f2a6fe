-- The index of lines: `lines` has one entry for each line that has something ready, but for those of
-- paused queues, so that a claim finds the best line without looking at the others. An entry is the mark
-- of suspects, the labels that the line requires, a zero, the queue if its ranks grow with its age, a
-- zero, rank and place of the first job in line, and the queue. Entries that share what stands before
-- rank and place are a group: their ranks can be compared.
-- A call that changes `ready` touches the line first; `flush` brings the entry up to date.
-- KEYS: ready lines
--@include meta
--@include records

-- The first member of `ready` of a line, given with its mark of suspects; false when there is none.
local function first_of(mark)
  return call('ZRANGEBYLEX', key.ready, '[' .. mark .. '\0', '(' .. mark .. '\1', 'LIMIT', 0, 1)[1] or false
end

-- The entry of a line whose first member is this one; nil while its queue is paused.
local function entry_of(mark, member)
  local plus = string.find(mark, '+', 1, true) or #mark + 1
  local queue, group = sub(mark, 2, plus - 1), ''
  local own = has_settings and settings[queue]
  if own then
    if own[QUEUE_PAUSED] then
      return nil
    end
    group = own[QUEUE_AGEING_MS] + own[QUEUE_AGE] > 0 and queue or ''
  end
  return sub(mark, 1, 1) .. sub(mark, plus) .. '\0' .. group .. '\0' .. sub(member, #mark + 2, #mark + 12) .. queue
end

-- Before a line is changed.
local function touch(mark)
  if touched[mark] == nil then
    touched[mark] = first_of(mark)
  end
end

local function send_entries(command, words)
  for from = 1, #words, CHUNK do
    call(command, key.lines, unpack(words, from, math.min(from + CHUNK - 1, #words)))
  end
end

-- Bring the entries of lines up to date that were changed.
function update_lines()
  local old, new = {}, {}
  for mark, before in pairs(touched) do
    local first = first_of(mark)
    if first ~= before then
      old[#old + 1] = before and entry_of(mark, before) or nil
      local entry = first and entry_of(mark, first)
      if entry then
        new[#new + 1] = '0'
        new[#new + 1] = entry
      end
    end
  end
  touched = {}
  send_entries('ZADD', new)
  send_entries('ZREM', old)
end
