-- Store completed parts of jobs, each fenced by its token.
-- ARGV: 1-3 clock, 4 most steps of a job, 5 most bytes of their values, then for each step: id of the job, token,
--       name, value
-- Returns: for each step "stored", "known", "full" or "stale"
--@adds
--@include bookkeeping
--@include steps

local most, most_bytes = tonumber(ARGV[4]), tonumber(ARGV[5])

local function put(id, token, name, value)
  local record = load(id)
  if not record or record[TOKEN] == '' or record[TOKEN] ~= token then
    total('stale')
    return 'stale'
  end
  local members, bytes = steps_of(id), #value
  for _, member in ipairs(members) do
    local known, stored = read_step(member)
    if known == name then
      return 'known'
    end
    bytes = bytes + #stored
  end
  if #members >= most or bytes > most_bytes then
    return 'full'
  end
  call('ZADD', key.steps, '0', step_member(id, name, value))
  return 'stored'
end

local reply = {}
for at = 6, #ARGV, 4 do
  reply[#reply + 1] = put(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
end
settle()
return reply
