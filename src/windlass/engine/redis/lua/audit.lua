-- Read the audit trail, the newest entries first. A member of `audit` has the parts of an entry: id, instant,
-- body.
-- KEYS: meta audit
-- ARGV: 1-3 clock, 4 limit, 5 the id before which to begin ("" = with the newest)
-- Returns: for each entry its member
local from = ARGV[5] == '' and '+' or '(' .. ARGV[5]
return redis.call('ZRANGE', key.audit, from, '(', 'BYLEX', 'REV', 'LIMIT', 0, ARGV[4])
