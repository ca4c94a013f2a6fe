-- Those who wait for work: the list, and what they say of themselves.
-- KEYS: wait
--@include clock
local nobody_waits = false  -- it was looked for, and there was none
-- So many waiters are looked at beyond those that are needed.
local MOST_ALONE = 8

-- So many of those who wait, the longest waiting first, behind so many others.
local function waiters(offset, number)
  return call('ZRANGEBYSCORE', key.wait, '(' .. text_of(server_ms), '+inf', 'LIMIT', offset, number)
end

-- What a waiter says of itself: its channel, whether it runs only jobs that must run alone, its session,
-- the nonce under which it claims, and the queues that it serves (none = all of them). Those
-- that are on the lists of several partitions have a channel alone.
local function read_waiter(waiter)
  if sub(waiter, 1, 1) == '=' then
    return cmsgpack.unpack(sub(waiter, 2))
  end
  return waiter
end
