-- The history of queues and tasks. A member of `history` has the kind of a row, the begin of its minute or hour,
-- its name (the sizes of queue and task, each with its text), and its numbers. Kinds are the measures (1) and
-- samples (2) of minutes, and the measures (3) and samples (4) of hours. A sample has no task.
-- KEYS: history
--@include constants
--@include clock

local function name_of(queue, task)
  return struct.pack('>H', #queue) .. queue .. struct.pack('>H', #task) .. task
end

-- What the rows of a minute or hour begin with.
local function front_of(kind, at_ms)
  return kind .. struct.pack('>I6', math.max(0, at_ms))
end

local function find_row(front, name)
  local begin = front .. name
  local member = call('ZRANGEBYLEX', key.history, '[' .. begin, '(' .. begin .. '\255', 'LIMIT', 0, 1)[1]
  return member, member and cmsgpack.unpack(sub(member, #begin + 1))
end

local function number_of_rows(kind, at_ms)
  return call('ZLEXCOUNT', key.history, '[' .. front_of(kind, at_ms), '(' .. front_of(kind, at_ms + 1))
end

local function replace_row(member, front, name, numbers)
  if member then
    call('ZREM', key.history, member)
  end
  call('ZADD', key.history, '0', front .. name .. cmsgpack.pack(numbers))
end

-- Add counts to a minute or hour. Counts beyond the limit of pairs go to that of all others.
local function add_counts(kind, at_ms, name, counts)
  local front, others = front_of(kind, at_ms), name_of('_other', '_other')
  local member, stored = find_row(front, name)
  if not member and name ~= others and number_of_rows(kind, at_ms) >= MAX_PAIRS then
    local has_others = find_row(front, others)
    if number_of_rows(kind, at_ms) - (has_others and 1 or 0) >= MAX_PAIRS then
      add_counts(kind, at_ms, others, counts)
      return
    end
  end
  for position, number in ipairs(stored or {}) do
    counts[position] = counts[position] + number
  end
  replace_row(member, front, name, counts)
end
