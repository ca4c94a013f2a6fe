-- Remember idempotency keys of another engine, unless another job has them. The field of a job with such a key
-- leads to the key, so that a removal of the job frees it.
-- KEYS: job keys key_expiry extra
-- ARGV: 1-3 clock, then for each key its field, the id of its job, the fingerprint and the expiry
-- Returns: for each key "stored", "known" or "held"
--@adds
--@include clock

local function put(field, id, fingerprint, until_ms)
  local found = call('HGET', key.keys, field)
  local known = found and cmsgpack.unpack(found)
  local is_known = known and known[3] > now_ms
  if is_known and known[1] ~= id then
    return 'held'
  end
  if not is_known then
    call('HSET', key.keys, field, cmsgpack.pack({ id, fingerprint, tonumber(until_ms) }))
    call('ZADD', key.key_expiry, until_ms, field)
  end
  if call('HEXISTS', key.job, id) == 1 then
    call('HSET', key.extra, 'k:' .. id, field)
  end
  return is_known and 'known' or 'stored'
end

local reply = {}
for at = 4, #ARGV, 4 do
  reply[#reply + 1] = put(unpack(ARGV, at, at + 3))
end
return reply
