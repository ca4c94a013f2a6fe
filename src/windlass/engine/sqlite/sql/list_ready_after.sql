-- The next jobs of one line in the order in which they should start, behind a rank and a place.
SELECT rank, place, row, id, queue, expires_ms
FROM jobs
WHERE state = 'ready' AND hold = 'none' AND queue = ?1 AND suspect = ?2 AND (rank, place) > (?3, ?4)
ORDER BY rank, place
LIMIT ?5
