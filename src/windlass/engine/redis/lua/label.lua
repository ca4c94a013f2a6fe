-- Give dead jobs other fingerprints.
-- ARGV: 1-3 clock, then for each job its id, when it ended, and the fingerprint
-- Returns: for each job "done", "refused" (not dead, or dead again) or "unknown"
--@adds
--@include moves

local ids = {}
for at = 4, #ARGV, 3 do
  ids[#ids + 1] = ARGV[at]
end
fetch(ids)
define_groups()
local reply = {}
for number, id in ipairs(ids) do
  local record = load(id)
  if not record then
    reply[number] = 'unknown'
  elseif record[STATE] ~= 'dead' or record[FINISHED_MS] ~= tonumber(ARGV[3 * number + 2]) then
    reply[number] = 'refused'
  else
    leave_group(id, record)
    record[FINGERPRINT] = ARGV[3 * number + 3]
    save(id)
    enter_group(id, record)
    reply[number] = 'done'
  end
end
settle()
return reply
