-- The next jobs of one queue in the order in which they should start.
SELECT rank, place, row, id, task, queue, attempt, starts, crashes, losses, interruptions, snoozes,
       strays, created_ms, expires_ms, suspect
FROM jobs
WHERE state = 'ready' AND hold = 'none' AND queue = ? AND suspect = ?
ORDER BY rank, place
LIMIT ?
