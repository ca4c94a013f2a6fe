-- Sessions whose lease ran out, and dead ones whose jobs were not all taken back yet.
SELECT session FROM sessions WHERE gone = 0 AND expires_ms <= ?1
UNION ALL
SELECT session FROM sessions WHERE gone = 1
