-- Set up a partition: give every key its sentinel, and store the settings that must never change. A
-- partition that was set up before only gets the keys that this version adds. A server with full memory
-- refuses them, and must stay usable, so it is left without them: a later call adds them. A partition
-- with another format or number of partitions stays unchanged.
-- KEYS: meta job body extra ready due parked held asked keep dead lease sessions forget keys
-- KEYS: key_expiry count total unique idle waiters watch watch_until schedule schedule_names schedule_due
-- KEYS: lines cancelled document audit history deaths dead_groups steps
-- ARGV: 1 format, 2 number of partitions, 3 an id, which identifies the data stored from now on, 4 the
--       name of `meta` in the format before, 5 "1" if jobs of that format are migrated, then for each key the
--       score of its sentinel ("" = a hash)
-- Returns: {stored format, stored number of partitions, stored id}
--@adds
local stored = redis.call('HMGET', key.meta, 'format', 'partitions', 'born')
local is_settled = stored[1] and stored[2] and stored[3]
if is_settled and (stored[1] ~= ARGV[1] or stored[2] ~= ARGV[2]) then
  return { tonumber(stored[1]), tonumber(stored[2]), stored[3] }  -- refused: nothing may be added
end
-- A new place would hide jobs of the format before. The name of that key has another slot, and
-- may be forbidden: then there is no such format.
local may_look = not redis.acl_check_cmd or redis.acl_check_cmd('HMGET', ARGV[4], 'format')
local before = not is_settled and may_look and redis.pcall('HMGET', ARGV[4], 'format', 'partitions') or {}
if before[1] and (ARGV[5] ~= '1' or before[2] ~= ARGV[2]) then
  return { tonumber(ARGV[5] == '1' and ARGV[1] or before[1]), tonumber(before[2]), '' }
end
local missing = {}
for number, name in ipairs(KEYS) do
  local score = ARGV[number + 5]
  if score == '' and redis.call('HEXISTS', name, '') == 0
      or score ~= '' and not redis.call('ZSCORE', name, '') then
    missing[#missing + 1] = { name, score }
  end
end
for _, one in ipairs(missing) do
  local name, score = one[1], one[2]
  local added
  if score == '' then
    added = redis.pcall('HSETNX', name, '', '')
  else
    added = redis.pcall('ZADD', name, 'NX', score, '')
  end
  if not is_settled and type(added) == 'table' then
    return added
  end
end
-- Redis stores a hash with a value of more than 64 bytes as a table. Otherwise, every call would search a list of
-- all fields, and `meta` has many.
if redis.call('HEXISTS', key.meta, 'as_table') == 0 then
  redis.pcall('HSET', key.meta, 'as_table', string.rep('.', 65))
end
if not is_settled then
  if not stored[1] then
    stored = { ARGV[1], ARGV[2] }
  end
  redis.call('HSET', key.meta, 'format', stored[1], 'partitions', stored[2])
  redis.call('HSETNX', key.meta, 'born', ARGV[3])
end
return { tonumber(stored[1]), tonumber(stored[2]), redis.call('HGET', key.meta, 'born') }
