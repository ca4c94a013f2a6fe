-- Prepare a partition: give every key its sentinel, and settle what must never change.
-- KEYS: meta job body extra ids ready due parked held asked keep dead lease sessions forget keys
-- KEYS: key_expiry count total unique wait schedule schedule_names schedule_due
-- ARGV: 1 format, 2 number of partitions, 3 an id, by which what is stored from now on is known
--       again, then for each key the score of its sentinel ("" = a hash)
-- Returns: {stored format, stored number of partitions, stored id}
local stored = redis.call('HMGET', key.meta, 'format', 'partitions')
if not stored[1] then
  stored = { ARGV[1], ARGV[2] }
end
for number, name in ipairs(KEYS) do
  local score = ARGV[number + 3]
  if score == '' then
    redis.call('HSETNX', name, '', '')
  else
    redis.call('ZADD', name, 'NX', score, '')
  end
end
redis.call('HSET', key.meta, 'format', stored[1], 'partitions', stored[2])
redis.call('HSETNX', key.meta, 'born', ARGV[3])
return { tonumber(stored[1]), tonumber(stored[2]), redis.call('HGET', key.meta, 'born') }
