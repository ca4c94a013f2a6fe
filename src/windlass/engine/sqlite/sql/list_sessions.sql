-- Live sessions and how many jobs each holds.
SELECT session, expires_ms, info,
       (SELECT count(*) FROM jobs WHERE state = 'running' AND jobs.session = sessions.session)
FROM sessions WHERE gone = 0 ORDER BY session
