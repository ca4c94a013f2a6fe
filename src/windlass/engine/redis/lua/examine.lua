-- Read the settings of a partition and list the commands that the Redis user may not send. Changes
-- nothing. Redis aborts a script in the middle when the script sends a forbidden command.
-- KEYS: meta job
-- ARGV: 1 a channel that we publish to, then commands that take a key first
-- Returns: {format, partitions (-1 = not used yet), id of the stored data ('' = none yet), 1 if
--          permissions could be checked, then the forbidden commands}
local stored = redis.pcall('HMGET', key.meta, 'format', 'partitions', 'born')
local reply = { tonumber(stored[1] or -1), tonumber(stored[2] or -1), stored[3] or '', 0 }
if not redis.acl_check_cmd then
  return reply
end
reply[4] = 1
for number = 2, #ARGV do
  if not redis.acl_check_cmd(ARGV[number], key.meta) then
    reply[#reply + 1] = ARGV[number]
  end
end
for _, command in ipairs({ 'PUBLISH', 'SUBSCRIBE' }) do
  if not redis.acl_check_cmd(command, ARGV[1]) then
    reply[#reply + 1] = command .. ' ' .. ARGV[1]
  end
end
if not redis.acl_check_cmd('PUBSUB', 'NUMSUB', ARGV[1]) then
  reply[#reply + 1] = 'PUBSUB NUMSUB'
end
return reply
