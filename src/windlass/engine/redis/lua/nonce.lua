-- Look up the nonce of a claim, before partitions are asked to lease.
-- KEYS: meta
-- ARGV: 1-3 clock, 4 session, 5 nonce
-- Returns: {no verdicts; 1 if the session is gone, 2 if the nonce was used before, otherwise 0; -1; 0;
--          nothing}: the reply of `turn` that leases nothing
--@include nonces

local _, is_gone, latest = find_session(ARGV[4])
return { '', is_gone and 1 or is_before(latest, ARGV[5]) and 0 or 2, -1, 0, '' }
