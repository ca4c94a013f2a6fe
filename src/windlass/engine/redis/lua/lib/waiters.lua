-- Register idle sessions that wait for work, and wake them.
-- `waiters` maps the name of a registration (the channel of a worker, a zero, the number of a plan) to its
-- waiting sessions. `idle` finds registrations by served jobs: "1" for jobs that must run alone or "0",
-- the queue ("" = every queue), for jobs that require labels a "+" and a label, a zero, the name.
-- Registrations for some tasks only are listed by these tasks instead: "1" or "0", two zeros, the task, a
-- zero, the name. They sort before all others, so that a call that finds none of them does nothing more.
-- A registration loses the sessions that are woken, so that two calls never spend their wake-ups on the
-- same session.
-- KEYS: idle waiters
--@include clock
local UNTIL_MS, SERVES_SUSPECTS, WAITS_IN, WAITS_WITH, WAITING, WAITS_FOR = 1, 2, 3, 4, 5, 6
local MOST_NAMES = 16  -- registrations are read in pages of this size
local MOST_PAGES = 32  -- after this many pages, the others are left to their own renewals
local MOST_ENTRIES = 500
local LOOK, RENEW = '?', '~'
local has_no_waiters = false  -- for the one job of this call
local all_names = {}  -- suspects -> every index entry, where they are few
local are_some_by_task = false  -- whether there are registrations for some tasks only

local function names_from(from, to, offset)
  return call('ZRANGEBYLEX', key.idle, from, to, 'LIMIT', offset, MOST_NAMES)
end

-- Registrations that serve a line, after an offset, whether there may be more, and their entries in the
-- index: those of its queue and those of every queue. For a line with labels, the first label decides.
-- With a task, the registrations for some tasks that name it; they may serve other lines.
local function waiting_for(suspects, line, offset, task)
  if task then
    local prefix = suspects .. '\0\0' .. task .. '\0'
    local found, names = names_from('[' .. prefix, '(' .. sub(prefix, 1, -2) .. '\1', offset), {}
    for number, entry in ipairs(found) do
      names[number] = sub(entry, #prefix + 1)
    end
    return names, #found == MOST_NAMES, found
  end
  local entries = all_names[suspects]
  if not entries then
    local to = '(' .. string.char(string.byte(suspects) + 1)
    entries = names_from('[' .. suspects, to, 0)
    if #entries > 0 and sub(entries[1], 2, 3) == '\0\0' then
      are_some_by_task = true
      entries = names_from('[' .. suspects .. '\0\1', to, 0)
    end
    if #entries < MOST_NAMES then
      all_names[suspects] = entries
    end
  end
  if #entries == 0 then
    return entries, false, entries
  end
  local plus = string.find(line, '+', 1, true)
  local label = plus and string.match(line, '^%+[^+]*', plus) or ''
  local own = suspects .. (plus and sub(line, 1, plus - 1) or line) .. label .. '\0'
  local any = suspects .. label .. '\0'
  local is_cut = false
  if #entries == MOST_NAMES then
    entries = names_from('[' .. own, '(' .. sub(own, 1, -2) .. '\1', offset)
    local others = names_from('[' .. any .. '\1', '(' .. sub(any, 1, -2) .. '\1', offset)
    is_cut = #entries == MOST_NAMES or #others == MOST_NAMES
    for _, entry in ipairs(others) do
      entries[#entries + 1] = entry
    end
  end
  local names, found = {}, {}
  for _, entry in ipairs(entries) do
    for _, prefix in ipairs({ own, any }) do
      if sub(entry, 1, #prefix) == prefix then
        names[#names + 1], found[#found + 1] = sub(entry, #prefix + 1), entry
        break
      end
    end
  end
  return names, is_cut, found
end

local function index_entries(name, waiter)
  local entries = {}
  if waiter[WAITS_FOR] then
    for number, task in ipairs(waiter[WAITS_FOR]) do
      entries[number] = waiter[SERVES_SUSPECTS] .. '\0\0' .. task .. '\0' .. name
    end
    return entries
  end
  for _, queue in ipairs(#waiter[WAITS_IN] == 0 and { '' } or waiter[WAITS_IN]) do
    local prefix = waiter[SERVES_SUSPECTS] .. queue
    entries[#entries + 1] = prefix .. '\0' .. name
    for _, label in ipairs(waiter[WAITS_WITH]) do
      entries[#entries + 1] = prefix .. '+' .. label .. '\0' .. name
    end
  end
  return entries
end

local function drop_waiter(name, waiter)
  all_names = {}
  call('HDEL', key.waiters, name)
  local entries = index_entries(name, waiter)
  for from = 1, #entries, MOST_ENTRIES do
    call('ZREM', key.idle, unpack(entries, from, math.min(from + MOST_ENTRIES - 1, #entries)))
  end
end

-- Whether sessions of a registration that `waiting_for` found may claim from the line.
local function serves(waiter, line)
  local plus = string.find(line, '+', 1, true)
  if waiter[WAITS_FOR] and #waiter[WAITS_IN] > 0 then
    local is_served = false
    for _, queue in ipairs(waiter[WAITS_IN]) do
      is_served = is_served or queue == (plus and sub(line, 1, plus - 1) or line)
    end
    if not is_served then
      return false
    end
  end
  for label in string.gmatch(plus and sub(line, plus + 1) or '', '[^+]+') do
    local is_there = false
    for _, own in ipairs(waiter[WAITS_WITH]) do
      is_there = is_there or own == label
    end
    if not is_there then
      return false
    end
  end
  return true
end

-- The registration under a name; nil when it has expired, and then it is removed.
local function read_waiter(name)
  local packed = call('HGET', key.waiters, name)
  local waiter = packed and packed ~= '' and cmsgpack.unpack(packed)
  return waiter and waiter[UNTIL_MS] > server_ms and waiter, waiter
end

-- Store the sessions that still wait under a name.
local function keep_waiter(name, waiter)
  if #waiter[WAITING] == 0 then
    drop_waiter(name, waiter)
  else
    call('HSET', key.waiters, name, cmsgpack.pack(waiter))
  end
end

local function channel_of(name)
  return sub(name, 1, string.find(name, '\0', 1, true) - 1)
end

-- Take up to `number` sessions from a registration and wake them; return their number. With 0, the worker
-- only learns when the next job is due. A registration is removed if its worker does not listen at this
-- server.
local function wake_sessions(name, waiter, number)
  local woken, sessions = {}, waiter[WAITING]
  while #woken < number and #sessions > 0 do
    table.remove(sessions)
    woken[#woken + 1] = table.remove(sessions)
  end
  local message = number == 0 and RENEW or LOOK .. cmsgpack.pack(woken)
  local heard = redis.pcall('PUBLISH', channel_of(name), message)
  if heard == 0 then
    drop_waiter(name, waiter)
    return 0
  elseif number > 0 then
    keep_waiter(name, waiter)
  end
  return number == 0 and 1 or #woken
end

-- Wake up to `number` sessions that may claim from a line, and return how many; with `is_due`, one worker
-- learns instead that a job of the line is due soon. Without the permission to publish, workers only poll.
-- `ready` has the number of these jobs by task, or is the record of a plain job from the priority on: all
-- of them have its task. With `task`, only sessions are woken that wait for jobs of some tasks, such as it.
local function wake(suspects, line, number, ready, is_due, task)
  local offset, asked, is_by_task = 0, number, not task
  while number > 0 and offset <= MOST_PAGES * MOST_NAMES do
    local names, is_cut, entries = waiting_for(suspects, line, offset, task)
    if is_by_task and are_some_by_task then
--@insert task_waiters
      is_by_task = false
    end
    local before = number
    local first = #names > 1 and time[2] % #names or 0  -- not always the same worker
    for at = 1, #names do
      local place = (first + at - 1) % #names + 1
      local name = names[place]
      local waiter, ended = read_waiter(name)
      if not waiter then
        if ended then
          drop_waiter(name, ended)
        else
          call('ZREM', key.idle, entries[place])
        end
        before = nil
      elseif number > 0 and serves(waiter, line) then
        local woken = wake_sessions(name, waiter, is_due and 0 or number)
        number = number - woken
        before = woken > 0 and before or nil
      end
    end
    if not is_cut then
      break
    end
    offset = before == number and offset + MOST_NAMES or 0  -- dropped or woken entries are gone
  end
  return asked - number
end
