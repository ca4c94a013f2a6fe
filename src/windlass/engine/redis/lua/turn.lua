-- End claims, then lease what is next in line.
-- ARGV: 1-3 clock, 4 session, 5 nonce, 6 limit ("" = claim nothing; negative = give again what is
--       held under the nonce, and use it up; with a + the nonce is used up if nothing was leased), 7 a plan, then for each
--       outcome its head (id, token, event, and two words more for some) and its bytes
-- Returns: {verdicts, a 1 or 0 for each outcome; gone; next_in_ms or -1; suspects wait; ages of queues; then
--          for each claim its id, record, body}
--@include finishing
--@include claiming

local suspects, queues, first = read_plan(7)
local ids, tokens, events, ones, others = {}, {}, {}, {}, {}
for at = first, #ARGV, 2 do
  local number = #ids + 1
  ids[number], tokens[number], events[number], ones[number], others[number] = cmsgpack.unpack(ARGV[at])
end
fetch(ids)
local verdicts = {}
for number, id in ipairs(ids) do
  local bytes = ARGV[first + 2 * number - 1]
  local is_accepted = finish(id, tokens[number], events[number], bytes, ones[number], others[number])
  verdicts[number] = is_accepted and '1' or '0'
end
count_successes()
flush()
local reply = { 0, -1, 0, '' }
if ARGV[6] ~= '' then
  reply = claim(ARGV[4], ARGV[5], suspects, queues, tonumber(ARGV[6]), sub(ARGV[6], 1, 1) == '+')
end
settle()
table.insert(reply, 1, table.concat(verdicts))
return reply
