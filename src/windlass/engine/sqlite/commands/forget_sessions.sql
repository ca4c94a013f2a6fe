-- Forget dead sessions that were kept long enough and hold nothing.
DELETE FROM sessions
WHERE gone = 1 AND expires_ms <= ?1
  AND NOT EXISTS (SELECT 1 FROM jobs WHERE state = 'running' AND jobs.session = sessions.session)
