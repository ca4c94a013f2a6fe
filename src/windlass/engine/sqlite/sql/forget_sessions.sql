-- Forget dead sessions that were kept long enough.
DELETE FROM sessions WHERE gone = 2 AND expires_ms <= ?1
