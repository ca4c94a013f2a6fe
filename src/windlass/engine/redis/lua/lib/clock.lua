-- The engine's clock. ARGV[1] is added to the server's time; with a leading "=" it is the time
-- itself, for tests in which the clock stands still.
-- ARGV: 1 clock, 2 lease_ms, 3 dead_ttl_ms; the arguments of the script begin at 4.
local call, sub = redis.call, string.sub

local time = call('TIME')
local server_ms, now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if sub(ARGV[1], 1, 1) == '=' then
  now_ms = tonumber(sub(ARGV[1], 2))
else
  now_ms = server_ms + tonumber(ARGV[1])
end
local first_counter  -- set by `put`: the counter of enqueued jobs that `meta` reads with its other fields
local lease_ms = tonumber(ARGV[2])
local dead_ttl_ms = tonumber(ARGV[3])

local function text_of(number)
  return string.format('%.0f', number)
end
