-- Read some dead jobs of a fingerprint, the latest death first.
-- KEYS: extra
-- ARGV: 1-3 clock, 4 limit, 5 fingerprint, 6 release, 7 queue and 8 task, each after a "=", or "" for any, 9 instant and id
--       of the death before which to begin, or ""
-- Returns: as `find`; the member of a job is the instant of its death and its id
--@include records
--@include group_walk
--@include order

local limit, deaths = tonumber(ARGV[4]), {}
for _, group in ipairs(groups_of(ARGV[5])) do
  local release, queue, task = string.match(group, '^[^%z]*%z([^%z]*)%z([^%z]*)%z([^%z]*)$')
  if (ARGV[6] == '' or ARGV[6] == '=' .. release) and (ARGV[7] == '' or ARGV[7] == '=' .. queue)
      and (ARGV[8] == '' or ARGV[8] == '=' .. task) then
    local before = ARGV[9] == '' and '\1' or '\0' .. ARGV[9]
    local found = call('ZRANGE', key.deaths, '(' .. group .. before, '[' .. group .. '\0', 'BYLEX', 'REV', 'LIMIT', 0, limit)
    for _, member in ipairs(found) do
      deaths[#deaths + 1] = sub(member, #group + 2)
    end
  end
end
table.sort(deaths, function(one, other) return is_before(other, one) end)
local ids = {}
for number = 1, math.min(limit, #deaths) do
  ids[number] = sub(deaths[number], 7)
end
fetch(ids)
local reply = { now_ms, #ids == limit and 1 or 0, #ids }
for number, id in ipairs(ids) do
  local record = load(id)
  local has_progress = record and record[HAS_PROGRESS] ~= 0
  reply[#reply + 1] = deaths[number]
  reply[#reply + 1] = ''
  reply[#reply + 1] = id
  reply[#reply + 1] = packed[id]
  reply[#reply + 1] = has_progress and call('HGET', key.extra, 'p:' .. id)
end
return reply
