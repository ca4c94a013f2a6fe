-- Claim only jobs of some tasks. Jobs of other tasks are passed over and stay in line; their number is
-- bounded. Inserted after `claim`, where a plan names tasks: it replaces functions that read the line.
local FIRST_READ = 64  -- jobs to read at first, in addition to those that are asked for
local read_front, read_front_of_all, read_next, find_any = front, front_of_all, next_in_line, is_any_ready
local wanted = {}  -- task -> true
local most_passed  -- in each queue of the plan, or in all queues if it names none
-- Queue -> how many jobs were passed over, in this search and in earlier ones of the same claim.
local passed, passed_before = {}, {}

-- Begin with the tasks and queues of a plan.
function filter_tasks(queues)
  wanted = {}
  for _, task in ipairs(tasks) do
    wanted[task] = true
  end
  most_passed = math.max(1, math.floor(MAX_PASSED_OVER / math.max(1, #queues)))
end

-- The jobs of these tasks among those that `read` gives, up to a number. `read` takes how many to read.
local function only_wanted(queue, number, read)
  local left = most_passed - (passed_before[queue] or 0)
  local size = number + math.min(left, FIRST_READ)
  while true do
    local ids, members = read(size)
    local found_ids, found_members, over, is_over = {}, {}, 0, false
    fetch(ids)
    for at, id in ipairs(ids) do
      local bytes = bytes_of(id)
      if #found_ids == number then
        break
      elseif not bytes or wanted[task_of(bytes)] then  -- a claim drops members without a job
        found_ids[#found_ids + 1], found_members[#found_members + 1] = id, members[at]
      elseif over == left then
        is_over = true
        break
      else
        over = over + 1
      end
    end
    if #found_ids == number or is_over or #ids < size or size == number + left then
      passed[queue] = over
      return found_ids, found_members
    end
    flush()
    size = number + left
  end
end

function front(suspects, queue, offset, number)
  if not tasks then
    return read_front(suspects, queue, offset, number)
  end
  local ids, members = only_wanted(queue, offset + number, function(size)
    return read_front(suspects, queue, 0, size)
  end)
  return { unpack(ids, offset + 1) }, { unpack(members, offset + 1) }
end

function front_of_all(suspects, limit)
  if not tasks then
    return read_front_of_all(suspects, limit)
  end
  return only_wanted('', limit, function(size)
    return read_front_of_all(suspects, size)
  end)
end

function next_in_line(suspects, queues, limit)
  for queue, number in pairs(passed) do
    passed_before[queue] = (passed_before[queue] or 0) + number
  end
  passed = {}
  return read_next(suspects, queues, limit)
end

-- The jobs that one of the functions above finds, without a claim.
function find_wanted(read, ...)
  local before = touched
  touched = {}
  local ids = read(...)
  flush()
  touched, passed, passed_before = before, {}, {}
  return ids
end

function is_any_ready(suspects, queues)
  if not tasks then
    return find_any(suspects, queues)
  end
  return #find_wanted(next_in_line, suspects, queues, 1) > 0
end
