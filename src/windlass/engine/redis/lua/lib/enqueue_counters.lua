-- Count enqueued jobs by queue and task. A pair is named by its queue, without labels, a zero, and its task.
-- `meta` has the counter of each pair, the names of all pairs, and their number without that of all others.
-- KEYS: meta
--@include constants
--@include clock
local OTHERS = '_other\0_other'

local function count_enqueued(field, number)
  if call('HINCRBY', key.meta, field, number) > number then
    return
  end
  local name, known = sub(field, 3), tonumber(call('HGET', key.meta, 'pairs') or 0)
  if known >= MAX_PAIRS and name ~= OTHERS then
    call('HDEL', key.meta, field)
    count_enqueued('e:' .. OTHERS, number)
    return
  end
  local names = call('HGET', key.meta, 'pair_names')
  names = names and cmsgpack.unpack(names) or {}
  names[#names + 1] = name
  call('HSET', key.meta, 'pair_names', cmsgpack.pack(names), 'pairs', text_of(known + (name ~= OTHERS and 1 or 0)))
end
