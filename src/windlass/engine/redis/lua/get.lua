-- Read all data of jobs.
-- KEYS: body extra
-- ARGV: 1-3 clock, then ids
-- Returns: {now_ms, for each id nothing or {record, body, progress, result, history ...}}, the
--          history oldest first
--@include records

local ids = { unpack(ARGV, 4) }
fetch(ids)
local bodies = read_fields(key.body, ids)
local reply = { now_ms }
for number, id in ipairs(ids) do
  local record = load(id)
  if record then
    local fields = { 'p:' .. id, 'r:' .. id }
    for entry = math.max(0, record[FAILURES] - MAX_FAILURES), record[FAILURES] - 1 do
      fields[#fields + 1] = 'f:' .. (entry % MAX_FAILURES) .. ':' .. id
    end
    local extra = read_fields(key.extra, fields)
    reply[number + 1] = { packed[id], bodies[number] or '', unpack(extra, 1, #fields) }
  else
    reply[number + 1] = false
  end
end
return reply
