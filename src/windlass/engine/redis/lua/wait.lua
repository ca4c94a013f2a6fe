-- Promote due jobs and take back lost jobs. Then register the idle sessions of a worker, and return the
-- sessions that have something to claim, in one step, so that no wake-up is lost in between.
-- ARGV: 1-3 clock, 4 channel of the worker, 5 lifetime in ms, 6 packed, for each plan its number, "1" or
--       "0" for suspects, queues, labels, and its sessions, each followed by its nonce ("" = only woken);
--       then 1 if wake-ups came for sessions of the plan that are not idle any more, otherwise 0; then its
--       tasks, if it names some
-- Returns: {next_in_ms or -1, number of registrations, sessions that should claim: some have something to
--          claim, others may already hold a job; these were not registered}
--@include claim
local MOST_PASSED = 8  -- lines that a wake-up is passed on for, under a plan without queues

-- The number of jobs that could each wake one session.
local function count_ready(suspects, queues, most)
  if most == 0 then
    return 0
  elseif tasks then
    return #find_wanted(next_in_line, suspects, queues, most)
  elseif not is_any_ready(suspects, queues) then
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

-- Wake sessions of other workers for ready jobs of a plan, beyond those found for this worker. Two
-- partitions can spend their wake-ups on the same session, and its worker cannot use the second one.
local function pass_on(suspects, queues, found)
  if tasks then
    local ids = find_wanted(next_in_line, suspects, queues, found + BITE)
    for at = found + 1, #ids do
      local bytes = bytes_of(ids[at])
      if bytes then
        note_ready(suspects, queue_of(bytes), now_ms, task_of(bytes))
      end
    end
    return
  end
  local lines = {}
  if #queues == 0 then
    local from, to = bounds(suspects)
    lines = lines_between(suspects, from, to, nil, MOST_PASSED)
  end
  for _, queue in ipairs(queues) do
    for _, line in ipairs(lines_of(suspects, queue)) do
      lines[#lines + 1] = line
    end
  end
  for _, line in ipairs(lines) do
    local number = call('ZLEXCOUNT', key.ready, bounds(suspects, line)) - found
    if number > 0 and is_served(line) then
      made_ready[suspects .. line] = math.max(made_ready[suspects .. line] or 0, number)
      -- Sessions for some tasks only would have been woken first, or have registered since then.
      ready_tasks[suspects .. line] = ready_tasks[suspects .. line] or {}
    end
  end
end

local function register(plan)
  local number, suspects, queues, with, sessions, is_surplus, only = unpack(plan)
  labels, sorted_labels, tasks = {}, with, only
  if tasks then
    filter_tasks(queues)
  end
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
  if not tasks then
    forget_wake_ups(suspects, queues, found)
  end
  local name = ARGV[4] .. '\0' .. number
  local waiter = { server_ms + tonumber(ARGV[5]), suspects, queues, with, sessions, tasks }
  if #sessions > 0 then
    for _, entry in ipairs(index_entries(name, waiter)) do
      call('ZADD', key.idle, 0, entry)
    end
  end
  keep_waiter(name, waiter)
  if is_surplus == 1 then
    pass_on(suspects, queues, found)
  end
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

-- When the first lease runs out that is not renewed until then, in ms from now. A worker looks again at
-- that time, so that lost jobs do not wait for its next renewal.
local function lease_ends_in_ms()
  local first = call('ZRANGEBYSCORE', key.lease, '(' .. text_of(now_ms), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if not first[1] or first[1] == '' then
    return math.huge
  end
  return math.max(tonumber(first[2]), reap_after_ms) - now_ms
end

local in_ms = next_in_ms()
if in_ms == 0 then
  notice()
  promote()
  reap()
  in_ms = next_in_ms()
end
local lost_in_ms = lease_ends_in_ms()
if in_ms < 0 or lost_in_ms < in_ms then
  in_ms = lost_in_ms == math.huge and -1 or lost_in_ms
end
local number = call('HLEN', key.waiters) - 1
local plans, have_tasks = cmsgpack.unpack(ARGV[6]), false
for _, plan in ipairs(plans) do
  have_tasks = have_tasks or plan[7]
end
if have_tasks then
--@insert task_filter
end
for _, plan in ipairs(plans) do
  register(plan)
end
drop_ended()
settle()
return { in_ms, number, reply }
