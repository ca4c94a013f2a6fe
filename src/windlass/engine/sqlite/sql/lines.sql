-- The index of lines, which finds the line with the best job.

-- name: better_line
-- List a line by a new job, unless another job of the line comes first.
INSERT INTO lines (line, suspect, labels, cohort, rank, place) VALUES (?1, 0, ?2, ?3, ?4, ?5)
ON CONFLICT (line, suspect) DO UPDATE SET cohort = ?3, rank = ?4, place = ?5
WHERE (?4, ?5) < (rank, place)

-- name: delete_line
-- Remove a line without ready jobs, or a line of a paused queue.
DELETE FROM lines WHERE line = ?1 AND suspect = ?2

-- name: keep_line
-- List a line by its first job.
INSERT INTO lines (line, suspect, labels, cohort, rank, place) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (line, suspect) DO UPDATE SET cohort = ?4, rank = ?5, place = ?6

-- name: line_heads
-- The index entry of a line (1), and its first job (0).
SELECT 1, suspect, cohort, rank, place FROM lines WHERE line = ?1
UNION ALL
SELECT 0, 0, '', rank, place FROM (
    SELECT rank, place FROM jobs
    WHERE state = 'ready' AND hold IS NULL AND queue = ?1 AND suspect = 0 ORDER BY rank, place LIMIT 1
) AS found
UNION ALL
SELECT 0, 1, '', rank, place FROM (
    SELECT rank, place FROM jobs
    WHERE state = 'ready' AND hold IS NULL AND queue = ?1 AND suspect = 1 ORDER BY rank, place LIMIT 1
) AS found

-- name: list_lines
-- The best lines of a group, after a rank and a place.
SELECT rank, place, line FROM lines
WHERE suspect = ?1 AND labels = ?2 AND cohort = ?3 AND (rank, place) > (?4, ?5) ORDER BY rank, place LIMIT ?6

-- name: list_ready
-- The next jobs of one queue in the order in which they should start, with the columns of a claim, when they took
-- their place in line, and the size of the call.
SELECT rank, place, row, id, queue, expires_ms,
       task, attempt, starts, crashes, losses, interruptions, snoozes, strays, created_ms, suspect, age - rank, call,
       coalesce(ready_ms, created_ms),
       coalesce(length(call), (SELECT length(body) FROM payloads WHERE job = row), 0)
FROM jobs
WHERE state = 'ready' AND hold IS NULL AND queue = ? AND suspect = ?
ORDER BY rank, place
LIMIT ?

-- name: list_ready_after
-- The next jobs of a line after a rank and a place.
SELECT rank, place, row, id, queue, expires_ms,
       task, attempt, starts, crashes, losses, interruptions, snoozes, strays, created_ms, suspect, age - rank, call,
       coalesce(ready_ms, created_ms),
       coalesce(length(call), (SELECT length(body) FROM payloads WHERE job = row), 0)
FROM jobs
WHERE state = 'ready' AND hold IS NULL AND queue = ?1 AND suspect = ?2 AND (rank, place) > (?3, ?4)
ORDER BY rank, place
LIMIT ?5

-- name: next_group
-- The next group of lines, starting at labels and a cohort.
SELECT labels, cohort FROM lines
WHERE suspect = ?1 AND (labels, cohort) >= (?2, ?3) ORDER BY labels, cohort LIMIT 1

-- name: next_ready_line
-- The next line between two names that has ready jobs.
SELECT queue FROM jobs INDEXED BY jobs_ready
WHERE state = 'ready' AND hold IS NULL AND queue > ? AND queue < ? ORDER BY queue LIMIT 1
