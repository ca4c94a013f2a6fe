-- The place of the job that should start first in one queue.
SELECT rank, place FROM jobs
WHERE state = 'ready' AND hold = 'none' AND queue = ? AND suspect = ? ORDER BY rank, place LIMIT 1
