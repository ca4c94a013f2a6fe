-- Sessions whose lease ran out, and dead ones that still hold jobs.
SELECT session FROM sessions WHERE gone = 0 AND expires_ms <= ?1
UNION ALL
SELECT session FROM sessions
WHERE gone = 1 AND EXISTS (SELECT 1 FROM jobs WHERE state = 'running' AND jobs.session = sessions.session)
