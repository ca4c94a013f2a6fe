-- Read documents. A member of `document` has the parts of a document: kind, key, revision, body.
-- KEYS: meta document
-- ARGV: 1-3 clock, 4 kind, 5 "after", 6 limit, 7 the key after which to begin
--                       or 5 "named", then keys
-- Returns: for each document its member, or nothing
local prefix = ARGV[4] .. '\0'
if ARGV[5] == 'after' then
  local from = '[' .. prefix .. (ARGV[7] ~= '' and ARGV[7] .. '\1' or '')
  return redis.call('ZRANGEBYLEX', key.document, from, '(' .. ARGV[4] .. '\1', 'LIMIT', 0, ARGV[6])
end
local reply = {}
for number = 6, #ARGV do
  local name = prefix .. ARGV[number]
  reply[#reply + 1] = redis.call('ZRANGEBYLEX', key.document, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', 0, 1)[1]
    or false
end
return reply
