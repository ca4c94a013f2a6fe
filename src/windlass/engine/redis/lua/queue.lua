-- The settings of queues, changed or only read.
-- ARGV: 1-3 clock, 4 queue ("" = change nothing), 5 paused: "1", "0" or "" (= as it is)
-- Returns: the settings of all queues that have others than the usual ones, packed ("" = none)
--@include bookkeeping

local queue = ARGV[4]
if queue ~= '' then
  local own = settings[queue] or { false }
  if ARGV[5] ~= '' then
    own[QUEUE_PAUSED] = ARGV[5] == '1'
  end
  if ARGV[5] == '0' then
    made_ready = CHUNK  -- for everybody who waits
  end
  settings[queue] = own[QUEUE_PAUSED] and own or nil
  if next(settings) then
    call('HSET', key.meta, 'queues', cmsgpack.pack(settings))
  else
    call('HDEL', key.meta, 'queues')
  end
end
settle()
return call('HGET', key.meta, 'queues') or ''
