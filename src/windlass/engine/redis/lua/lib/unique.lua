-- Unique keys. `unique` maps a key to the latest job under it, which holds the key while its state or
-- its period says so. So claims and ends of jobs need not update the key. A record stores the key as
-- "until period_until_ms key".
-- KEYS: unique
--@include moves
local QUEUED = { waiting = true, scheduled = true, ready = true, retrying = true }
local HOLDING = {
  start = QUEUED,
  ['end'] = { waiting = true, scheduled = true, ready = true, retrying = true, running = true },
  success = {
    waiting = true, scheduled = true, ready = true, retrying = true, running = true, dead = true,
  },
}

-- What ends the hold of a job, the instant before which it does not end, and the key.
local function read_unique(record)
  local ends_at, period_until_ms, name = string.match(record[UNIQUE], '^(%a+) (%d+) (.*)$')
  return ends_at, tonumber(period_until_ms), name
end

local function unique_prefix(task, name)
  return #task .. ':' .. task .. name .. '\0'
end

-- The id of the job that a key points to; nil when there is none.
local function last_stored(task, name)
  local prefix = unique_prefix(task, name)
  local last = sub(prefix, 1, -2) .. '\1'
  local member = call('ZRANGEBYLEX', key.unique, '[' .. prefix, '(' .. last, 'LIMIT', 0, 1)[1]
  return member and sub(member, #prefix + 1)
end

-- The job that holds a key, and its record; nil when no job does. Entries that point to no job, or to a
-- job with another key, are skipped.
local function find_holder(task, name)
  local prefix = unique_prefix(task, name)
  local last = sub(prefix, 1, -2) .. '\1'
  for _, member in ipairs(call('ZRANGEBYLEX', key.unique, '[' .. prefix, '(' .. last, 'LIMIT', 0, 10)) do
    local id = sub(member, #prefix + 1)
    local record = load(id)
    if record and record[UNIQUE] ~= '' then
      local ends_at, period_until_ms, own = read_unique(record)
      if own == name and (HOLDING[ends_at][record[STATE]] or period_until_ms > now_ms) then
        return id, record
      end
    end
  end
end

-- Point a key to this job.
local function lead(task, name, id)
  local prefix, before = unique_prefix(task, name), last_stored(task, name)
  if before ~= id then
    call('ZADD', key.unique, 0, prefix .. id)
    if before then
      call('ZREM', key.unique, prefix .. before)
    end
  end
end

-- Give a job fresh budgets, and remove its progress.
local function reset_budgets(id, record)
  for _, field in ipairs({ ATTEMPT, STARTS, CRASHES, LOSSES, INTERRUPTIONS, SNOOZES, STRAYS }) do
    record[field] = 0
  end
  if record[HAS_PROGRESS] ~= 0 then
    record[HAS_PROGRESS] = 0
    write('HDEL', key.extra, 'p:' .. id)
  end
end
