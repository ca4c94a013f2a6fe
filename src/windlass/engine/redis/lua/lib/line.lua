-- The line: the ready jobs of a plan, the due jobs, and the time until the next due job.
--@include sessions

-- Tiers with several queues: the first of them -> their number and their turns.
local shares = {}

local labels, sorted_labels = {}, {}  -- of this worker -> true; the same in order
local tasks  -- the only tasks that this worker can run; nil: all

-- Bounds of the ready jobs of one line, or of all.
local function bounds(suspects, line)
  if line then
    return '[' .. suspects .. line .. '\0', '(' .. suspects .. line .. '\1'
  end
  return '[' .. suspects, '(' .. string.char(string.byte(suspects) + 1)
end

local function range(from, to, offset, limit)
  return call('ZRANGEBYLEX', key.ready, from, to, 'LIMIT', offset, limit)
end

-- Bounds of the lines of a queue for jobs that require labels.
local function label_bounds(suspects, queue)
  return '[' .. suspects .. queue .. '+', '(' .. suspects .. queue .. ','
end

-- The id in a member of `ready`: behind the mark of suspects, the line, a zero, rank and place.
local function id_in(member, size)
  return sub(member, size + 14)
end

local function is_open(queue)
  local own = settings[queue]
  return not (own and own[QUEUE_PAUSED])
end

-- Whether this worker may claim from a line of a queue that it serves.
local function is_served(line)
  local plus = string.find(line, '+', 1, true)
  if not plus then
    return is_open(line)
  end
  for label in string.gmatch(sub(line, plus + 1), '[^+]+') do
    if not labels[label] then
      return false
    end
  end
  return is_open(sub(line, 1, plus - 1))
end

-- The lines with jobs between two bounds, with one seek per line: all of them, or those that `accept`
-- accepts, up to a limit.
local function lines_between(suspects, from, to, accept, most)
  local lines = {}
  while #lines < (most or math.huge) do
    local head = range(from, to, 0, 1)[1]
    if not head then
      break
    end
    local line = sub(head, 2, (string.find(head, '\0', 2, true) or #head + 1) - 1)
    if not accept or accept(line) then
      lines[#lines + 1] = line
    end
    from = '(' .. suspects .. line .. '\1'
  end
  return lines
end

-- The lines with ready jobs after one, with their mark of suspects; at most `most`.
local function marks_behind(mark, most)
  local marks = {}
  for _, suspects in ipairs({ '0', '1' }) do
    if #marks < most and sub(mark, 1, 1) <= suspects then
      local from, to = bounds(suspects)
      if sub(mark, 1, 1) == suspects then
        from = '(' .. mark .. '\1'
      end
      for _, line in ipairs(lines_between(suspects, from, to, nil, most - #marks)) do
        marks[#marks + 1] = suspects .. line
      end
    end
  end
  return marks
end

-- The entry that a line should have; nil when it should have none.
local function right_entry(mark)
  local first = first_of(mark)
  return first and entry_of(mark, first) or nil
end

-- The lines of a queue for this worker: its own, and its lines with labels that have jobs.
local function lines_of(suspects, queue)
  if not is_open(queue) then
    return {}
  end
  local lines = { queue }
  if next(labels) then
    local from, to = label_bounds(suspects, queue)
    for _, line in ipairs(lines_between(suspects, from, to, is_served)) do
      lines[#lines + 1] = line
    end
  end
  return lines
end

-- Skip labels that this worker does not have: return the next ones that it may have; nil when it has all
-- required labels.
local function skip_labels(required)
  local at = 1
  for label in string.gmatch(required, '[^+]+') do
    if not labels[label] then
      for _, own in ipairs(sorted_labels) do
        if is_before(label, own) then
          return sub(required, 1, at) .. own
        end
      end
      return sub(required, 1, at - 1) .. ','
    end
    at = at + #label + 1
  end
end

-- Bounds of the entries of `lines` for this worker; with labels, they include entries for other workers.
local function entry_bounds(suspects)
  local last = #sorted_labels > 0 and string.char(string.byte(suspects) + 1) or suspects .. '\1'
  return '[' .. suspects .. '\0', '(' .. last
end

local function entries_between(from, to, limit)
  return call('ZRANGEBYLEX', key.lines, from, to, 'LIMIT', 0, limit)
end

-- The groups of `lines` that this worker may claim from, with one seek per group; at most `most`.
local function groups_of(suspects, most)
  local groups, from, to = {}, entry_bounds(suspects)
  while #groups < most do
    local entry = entries_between(from, to, 1)[1]
    if not entry then
      break
    end
    local stop = string.find(entry, '\0', 2, true)
    local required = sub(entry, 2, stop - 1)
    local next_labels = required ~= '' and skip_labels(required)
    if next_labels then
      from = '[' .. suspects .. next_labels
    else
      local last = string.find(entry, '\0', stop + 1, true)
      local name = sub(entry, stop + 1, last - 1)
      groups[#groups + 1] = { prefix = sub(entry, 1, last), labels = required, name = name }
      from = '(' .. sub(entry, 1, last - 1) .. '\1'
    end
  end
  return groups
end

local function is_any_ready(suspects, queues)
  if #queues == 0 then
    return #groups_of(suspects, 1) > 0
  end
  for _, queue in ipairs(queues) do
    for _, line in ipairs(lines_of(suspects, queue)) do
      local from, to = bounds(suspects, line)
      if #range(from, to, 0, 1) > 0 then
        return true
      end
    end
  end
  return false
end

-- Milliseconds until the next due job; -1 when there is none.
local function next_in_ms()
  if may_reap() then
    return 0
  end
  local first = call('ZRANGE', key.due, 0, 0, 'WITHSCORES')
  if not first[1] or first[1] == '' or tonumber(first[2]) >= LATEST_MS then
    return -1  -- a job of a paused task is never due
  end
  return math.max(0, tonumber(first[2]) - now_ms)
end

-- Read a plan from the arguments: "1" or "0" for suspects, and in the same argument the packed tasks if the
-- plan names some; the number of queues, of shares and of labels, the queues, for each share its first
-- queue, their number and their turns, the labels. Returns suspects and queues, and the position of the
-- next argument.
local function read_plan(at)
  local queues, seen = {}, {}
  local last = at + 3 + tonumber(ARGV[at + 1])
  for number = at + 4, last do
    if not seen[ARGV[number]] then
      seen[ARGV[number]] = true
      queues[#queues + 1] = ARGV[number]
    end
  end
  for _ = 1, tonumber(ARGV[at + 2]) do
    shares[ARGV[last + 1] + 1] = { number = tonumber(ARGV[last + 2]), turns = ARGV[last + 3] }
    last = last + 3
  end
  for _ = 1, tonumber(ARGV[at + 3]) do
    last = last + 1
    labels[ARGV[last]] = true
    sorted_labels[#sorted_labels + 1] = ARGV[last]
  end
  table.sort(sorted_labels, is_before)
  local suspects = ARGV[at]
  if #suspects > 1 then
    tasks, suspects = cmsgpack.unpack(sub(suspects, 2)), sub(suspects, 1, 1)
  end
  return suspects, queues, last + 1
end
