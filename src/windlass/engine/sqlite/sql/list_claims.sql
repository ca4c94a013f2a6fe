-- The jobs that a session still holds under one token, in the order of their claim.
SELECT rank, place, id, task, queue, attempt, starts, crashes, losses, interruptions, snoozes, strays, created_ms,
       suspect, age - rank, coalesce((SELECT body FROM payloads WHERE job = row), x'')
FROM jobs
WHERE state = 'running' AND session = ? AND token = ?
ORDER BY rank, place
