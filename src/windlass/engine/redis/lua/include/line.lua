-- The line: what is ready under a plan, what is due, and when the next thing is.
--@include sessions

-- Where queues share a tier: the first of them -> how many there are, and their turns.
local shares = {}

-- Bounds of what is ready: of one queue, or of all.
local function bounds(suspects, queue)
  if queue then
    return '[' .. suspects .. queue .. '\0', '(' .. suspects .. queue .. '\1'
  end
  return '[' .. suspects, '(' .. string.char(string.byte(suspects) + 1)
end

local function range(from, to, offset, limit)
  return call('ZRANGEBYLEX', key.ready, from, to, 'LIMIT', offset, limit)
end

local function is_any_ready(suspects, queues)
  if #queues == 0 then
    local from, to = bounds(suspects)
    return #range(from, to, 0, 1) > 0
  end
  for _, queue in ipairs(queues) do
    local from, to = bounds(suspects, queue)
    if #range(from, to, 0, 1) > 0 then
      return true
    end
  end
  return false
end

-- In how many milliseconds the next thing is due; -1 when nothing is.
local function next_in_ms()
  if may_reap() then
    return 0
  end
  local first = call('ZRANGE', key.due, 0, 0, 'WITHSCORES')
  if not first[1] or first[1] == '' then
    return -1
  end
  return math.max(0, tonumber(first[2]) - now_ms)
end

local function has_work(suspects, queues)
  return next_in_ms() == 0 or is_any_ready(suspects, queues)
end

-- Read a plan from the arguments: "1" or "0" for suspects, the number of queues and of shares, the
-- queues, for each share its first queue, how many there are and their turns. Gives the first two,
-- and where the next argument is.
local function read_plan(at)
  local queues, seen = {}, {}
  local last = at + 2 + tonumber(ARGV[at + 1])
  for number = at + 3, last do
    if not seen[ARGV[number]] then
      seen[ARGV[number]] = true
      queues[#queues + 1] = ARGV[number]
    end
  end
  for _ = 1, tonumber(ARGV[at + 2]) do
    shares[ARGV[last + 1] + 1] = { number = tonumber(ARGV[last + 2]), turns = ARGV[last + 3] }
    last = last + 3
  end
  return ARGV[at], queues, last + 1
end
