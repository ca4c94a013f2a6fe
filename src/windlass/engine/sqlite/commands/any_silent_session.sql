-- Whether a lease ran out, or a dead session still holds jobs.
SELECT EXISTS (SELECT 1 FROM sessions WHERE gone = 0 AND expires_ms <= ?1)
    OR EXISTS (SELECT 1 FROM sessions WHERE gone = 1 AND EXISTS (
           SELECT 1 FROM jobs WHERE state = 'running' AND jobs.session = sessions.session))
