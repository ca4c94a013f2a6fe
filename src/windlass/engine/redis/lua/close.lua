-- End a session after its process died. Jobs under way are charged; all other jobs return to their old
-- place, each with an interruption counted, in bounded batches. With "lose", all jobs count as lost.
-- ARGV: 1-3 clock, 4 session, 5 event for jobs under way ("crash" or "suspect"), or "lose" for all,
--       6 cause, then the ids of the jobs under way
-- Returns: {number of charged jobs, number of returned jobs, whether there may be more}
--@include sessions

local session, event, cause = ARGV[4], ARGV[5], ARGV[6]
local blamed = 0
for number = 7, #ARGV do
  local id = ARGV[number]
  local record = load(id)
  if record and record[STATE] == 'running' and record[SESSION] == session then
    move(id, record, event, { cause = cause })
    blamed = blamed + 1
  end
end
flush()
local ids, seen = sound_ids(session, nil, CHUNK)
for _, id in ipairs(ids) do
  if event == 'lose' then
    move(id, load(id), event, { cause = cause })
  else
    move(id, load(id), 'release')  -- counted: it may have ended unreported, again and again
  end
end
end_session(session, seen == CHUNK, event == 'lose')
settle()
return { blamed, #ids, seen == CHUNK and 1 or 0 }
