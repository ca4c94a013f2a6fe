-- End claims, then lease the next jobs in line.
-- ARGV: 1-3 clock, 4 session, 5 nonce, 6 limit ("" = claim nothing; negative = return the jobs that are
--       held under the nonce again, and use it up; with a + the nonce is used up if nothing was leased),
--       a space and the byte limit of the leased bodies, 7 a plan, then, if there are outcomes, an array
--       of them (id, token, event, and two more words, which some events use), and the bytes of each
-- Returns: {verdicts, a digit for each outcome, see finish; 1 if the session is gone, 2 if the nonce was used before,
--          otherwise 0; next_in_ms or -1; suspects wait; ages of queues; then for each claim its id,
--          record, body}
--@include finish
--@include claim

local suspects, queues, first = read_plan(7)
if tasks then
--@insert task_filter
  filter_tasks(queues)
end
local outcomes = ARGV[first] and cmsgpack.unpack(ARGV[first]) or {}
local ids, verdicts = {}, {}
for at = 1, #outcomes, 5 do
  ids[#ids + 1] = outcomes[at]
end
fetch(ids)
for number, id in ipairs(ids) do
  local at = 5 * number
  verdicts[number] =
    finish(id, outcomes[at - 3], outcomes[at - 2], ARGV[first + number], outcomes[at - 1], outcomes[at])
end
count_successes()
flush()
local reply = { 0, -1, 0, '' }
if ARGV[6] ~= '' then
  local limit, most_bytes = string.match(ARGV[6], '(%S+) (%d+)')
  local is_last = sub(limit, 1, 1) == '+'
  reply = claim(ARGV[4], ARGV[5], suspects, queues, tonumber(limit), tonumber(most_bytes), is_last)
end
settle()
table.insert(reply, 1, table.concat(verdicts))
return reply
