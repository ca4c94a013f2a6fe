-- Release, uncharged, the jobs that a session holds under a nonce, and use up the nonce.
-- ARGV: 1-3 clock, 4 session, 5 nonce
-- Returns: number of released jobs
--@include sessions

local session, nonce = ARGV[4], ARGV[5]
use_up(session, nonce)
local ids = sound_ids(session, nonce, CHUNK)
for _, id in ipairs(ids) do
  local record = load(id)
  record[LAST_TOKEN], record[LAST_EVENT] = nonce, 'release'
  move(id, record, 'release', { unstarted = true })
end
settle()
return #ids
