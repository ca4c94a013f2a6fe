-- Notify callers that wait for the end of a job: the call that ends it notifies each caller once.
-- KEYS: watch
--@include bookkeeping

-- Without the permission to publish, callers only poll.
function publish_ends()
  if call('HLEN', key.watch) == 1 then
    return
  end
  local found = {}
  for from = 1, #ends, CHUNK do
    local ids = { unpack(ends, from, math.min(from + CHUNK - 1, #ends)) }
    for number, channels in ipairs(call('HMGET', key.watch, unpack(ids))) do
      if channels then
        found[ids[number]] = cmsgpack.unpack(channels)
      end
    end
  end
  for id, channels in pairs(found) do
    call('HDEL', key.watch, id)
    for _, channel in ipairs(channels) do
      redis.pcall('PUBLISH', channel, id)
    end
  end
end
