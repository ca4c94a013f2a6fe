-- Register the idle sessions of a worker, and say for which of them there is something to claim. Both in one
-- step, so that no wake-up falls in between. What is due is made ready first, and what is lost taken back.
-- ARGV: 1-3 clock, 4 channel of the worker, 5 for how long in ms, 6 packed, for each plan its number, "1" or
--       "0" for suspects, queues, labels, and its sessions, each followed by its nonce ("" = it is only woken)
-- Returns: {next_in_ms or -1, how many registrations there are, for each plan how many of its sessions, from
--          the last one back, have something to claim: these were not registered}
--@include claiming

-- How many jobs there may be for one session each.
local function count_ready(suspects, queues, most)
  if most == 0 or not is_any_ready(suspects, queues) then
    return 0
  end
  local number = 0
  if #queues == 0 then
    number = call('ZLEXCOUNT', key.ready, bounds(suspects))
  end
  for _, queue in ipairs(queues) do
    for _, line in ipairs(lines_of(suspects, queue)) do
      number = number + call('ZLEXCOUNT', key.ready, bounds(suspects, line))
    end
  end
  return math.min(number, most)
end

-- Sessions that look at once need not be woken for what this call has made ready.
local function forget_wake_ups(suspects, queues, number)
  for of_line, count in pairs(made_ready) do
    local is_served = #queues == 0
    for _, queue in ipairs(queues) do
      is_served = is_served or queue == base_of(sub(of_line, 2))
    end
    if is_served and sub(of_line, 1, 1) == suspects then
      local some = math.min(count, number)
      made_ready[of_line], number = count - some, number - some
    end
  end
end

local function register(plan)
  local number, suspects, queues, with, sessions = unpack(plan)
  labels = {}
  for _, label in ipairs(with) do
    labels[label] = true
  end
  local found = count_ready(suspects, queues, #sessions / 2)
  for _ = 1, 2 * found do
    table.remove(sessions)
  end
  forget_wake_ups(suspects, queues, found)
  local name = ARGV[4] .. '\0' .. number
  local waiter = { server_ms + tonumber(ARGV[5]), suspects, queues, with, sessions }
  if #sessions > 0 then
    for _, entry in ipairs(index_entries(name, waiter)) do
      call('ZADD', key.idle, 0, entry)
    end
  end
  keep_waiter(name, waiter)
  return found
end

-- Workers that ended without a word leave registrations behind: every call looks at a few of them.
local function drop_ended()
  for _, name in ipairs(call('HRANDFIELD', key.waiters, 2)) do
    local waiter, ended = read_waiter(name)
    if not waiter and ended then
      drop_waiter(name, ended)
    end
  end
end

local in_ms = next_in_ms()
if in_ms == 0 then
  notice()
  promote()
  reap()
  in_ms = next_in_ms()
end
local reply = { in_ms, call('HLEN', key.waiters) - 1 }
for _, plan in ipairs(cmsgpack.unpack(ARGV[6])) do
  reply[#reply + 1] = register(plan)
end
drop_ended()
settle()
return reply
