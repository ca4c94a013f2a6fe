-- The index of lines: `lines` has one entry for each line with ready jobs, except those of paused queues,
-- so that a claim finds the best line without reading the others. An entry is the mark of suspects, the
-- labels that the line requires, a zero, the name of a group, a zero, rank and place of the first job in
-- line, and the queue. Queues that age at the same rate are a group: the difference of their ages is
-- constant, and ranks are adjusted by it. Other queues are the group "".
-- Before a call changes `ready`, it marks the line as touched; `flush` then updates the entry.
-- KEYS: ready lines
--@include meta
--@include records
--@include line_entry

-- The first member of `ready` of a line, given with its mark of suspects; false when there is none.
local function first_of(mark)
  return call('ZRANGEBYLEX', key.ready, '[' .. mark .. '\0', '(' .. mark .. '\1', 'LIMIT', 0, 1)[1] or false
end

-- The group of a queue with these settings, and how much older than its group it is.
local function group_of(own)
  local period_ms = own[QUEUE_AGEING_MS]
  if period_ms == 0 then
    return '', own[QUEUE_AGE]
  end
  local phase_ms = own[QUEUE_SINCE_MS] % period_ms
  return text_of(period_ms) .. ' ' .. text_of(phase_ms), own[QUEUE_AGE] - (own[QUEUE_SINCE_MS] - phase_ms) / period_ms
end

-- The current age of a group.
local function age_of_group(group)
  local period_ms, phase_ms = string.match(group, '^(%d+) (%d+)$')
  return period_ms and math.floor((now_ms - phase_ms) / period_ms) or 0
end

-- The entry of a line with this first member; nil while its queue is paused.
local function entry_of(mark, member)
  local plus = string.find(mark, '+', 1, true) or #mark + 1
  local queue, group, age = sub(mark, 2, plus - 1), '', 0
  local own = has_settings and settings[queue]
  if own then
    if own[QUEUE_PAUSED] then
      return nil
    end
    group, age = group_of(own)
  end
  local rank, place = 0, 0
  if #member >= #mark + 12 then  -- otherwise it is no member, and a claim drops it
    rank, place = struct.unpack('>I4I7', member, #mark + 2)
  end
  return make_entry(sub(mark, 1, 1), sub(mark, plus), group, rank - age, place, queue)
end

local function send_entries(command, words)
  for from = 1, #words, CHUNK do
    call(command, key.lines, unpack(words, from, math.min(from + CHUNK - 1, #words)))
  end
end


-- mark -> rank of the first job in line as new ones arrive; false once the line was changed otherwise.
local first_rank = {}

-- Call this before a line is changed.
local function touch(mark)
  first_rank[mark] = false
  if touched[mark] == nil then
    touched[mark] = first_of(mark)
  end
end

-- The same before a new job takes its place: it comes after all others of its rank, so that the entry
-- stays the same unless the rank is better than that of the first job.
local function arrive(mark, rank)
  local known = first_rank[mark]
  if known == nil then
    local first = first_of(mark)
    known = first and #first >= #mark + 12 and struct.unpack('>I4', first, #mark + 2) or math.huge
    if known == math.huge or rank < known then
      touched[mark] = first
    end
  elseif known == false or rank < known then
    touch(mark)
    return
  end
  first_rank[mark] = math.min(known, rank)
end

-- Update the entries of changed lines.
function update_lines()
  local old, new = {}, {}
  for mark, before in pairs(touched) do
    local first = first_of(mark)
    if before and first ~= before then
      old[#old + 1] = entry_of(mark, before)
    end
    local entry = first and entry_of(mark, first)
    if entry then
      new[#new + 1] = '0'
      new[#new + 1] = entry
    end
  end
  touched = {}
  send_entries('ZADD', new)
  send_entries('ZREM', old)
end
