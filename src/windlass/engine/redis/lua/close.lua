-- End a session whose process is gone. Who was under way is blamed; all others go back, and an
-- interruption is counted for each.
-- ARGV: 1-3 clock, 4 session, 5 event for those that were under way ("crash" or "suspect"), 6 cause,
--       then their ids
-- Returns: {how many were blamed, how many went back}
--@include sessions

local session, event, cause = ARGV[4], ARGV[5], ARGV[6]
local is_suspect = {}
for number = 7, #ARGV do
  is_suspect[ARGV[number]] = true
end
local blamed, released = 0, 0
repeat
  local ids = held_ids(session, nil, CHUNK)
  fetch(ids)
  for _, id in ipairs(ids) do
    if is_suspect[id] then
      move(id, load(id), event, { cause = cause })
      blamed = blamed + 1
    else
      move(id, load(id), 'release')  -- it may have ended unreported, and must not for ever
      released = released + 1
    end
  end
  flush()
until #ids < CHUNK
end_session(session)
settle()
return { blamed, released }
