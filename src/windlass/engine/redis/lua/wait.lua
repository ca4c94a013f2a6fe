-- Register the idle sessions of a worker, and return those that have something to claim. Both in one step,
-- so that no wake-up is lost in between. First promote due jobs and take back lost ones.
-- ARGV: 1-3 clock, 4 channel of the worker, 5 lifetime in ms, 6 packed, for each plan its number, "1" or
--       "0" for suspects, queues, labels, and its sessions, each followed by its nonce ("" = only woken)
-- Returns: {next_in_ms or -1, number of registrations, sessions that should claim: some have something to
--          claim, others may already hold a job; these were not registered}
--@include claiming

-- The number of jobs that could each wake one session.
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

-- Sessions that claim at once need no wake-up for the jobs that this call has made ready.
local function forget_wake_ups(suspects, queues, number)
  for of_line, count in pairs(made_ready) do
    local line = sub(of_line, 2)
    local is_ours = #queues == 0
    for _, queue in ipairs(queues) do
      is_ours = is_ours or queue == base_of(line)
    end
    if is_ours and sub(of_line, 1, 1) == suspects and is_served(line) then
      local some = math.min(count, number)
      made_ready[of_line], number = count - some, number - some
    end
  end
end

local reply = {}  -- sessions that should claim

-- Remove sessions whose nonce was used: a job was handed off to them, and the message is not read yet.
local function without_used(sessions)
  local names, left = {}, {}
  for at = 1, #sessions, 2 do
    names[#names + 1] = sessions[at]
  end
  local infos = #names > 0 and call('HMGET', key.sessions, unpack(names)) or {}
  for number, info in ipairs(infos) do
    local session, nonce = sessions[2 * number - 1], sessions[2 * number]
    local latest = info and sub(info, 2) or ''
    if nonce ~= '' and latest ~= '' and (sub(info, 1, 1) == '1' or not is_before(latest, nonce)) then
      reply[#reply + 1] = session
    else
      left[#left + 1], left[#left + 2] = session, nonce
    end
  end
  return left
end

local function register(plan)
  local number, suspects, queues, with, sessions = unpack(plan)
  labels, sorted_labels = {}, with
  for _, label in ipairs(with) do
    labels[label] = true
  end
  table.sort(sorted_labels, is_before)
  sessions = without_used(sessions)
  local found = count_ready(suspects, queues, #sessions / 2)
  for _ = 1, found do
    table.remove(sessions)
    reply[#reply + 1] = table.remove(sessions)
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
end

-- Workers that were killed leave registrations behind: every call examines a few of them.
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
local number = call('HLEN', key.waiters) - 1
for _, plan in ipairs(cmsgpack.unpack(ARGV[6])) do
  register(plan)
end
drop_ended()
settle()
return { in_ms, number, reply }
