-- What a session still holds under one token, in the order in which it was claimed.
SELECT rank, place, row, id, task, queue, attempt, starts, crashes, losses, interruptions, snoozes,
       strays, created_ms, expires_ms, suspect
FROM jobs
WHERE state = 'running' AND session = ? AND token = ?
ORDER BY rank, place
