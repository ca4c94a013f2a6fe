-- Lines of queues, and the purge of a queue.

-- name: any_ready_in
-- Whether one queue has a job that may be claimed.
SELECT EXISTS (
    SELECT 1 FROM jobs WHERE state = 'ready' AND hold IS NULL AND queue = ? AND suspect = 0)

-- name: any_suspect_in
-- Whether one queue has waiting jobs that must run alone.
SELECT EXISTS (
    SELECT 1 FROM jobs INDEXED BY jobs_suspect
    WHERE suspect = 1 AND state = 'ready' AND hold IS NULL AND queue = ?)

-- name: list_waiting_later
-- Jobs that wait for an instant, after an instant and row.
SELECT due_ms, row, id, queue, state FROM jobs
WHERE due_ms IS NOT NULL AND (due_ms, row) > (?, ?) ORDER BY due_ms, row LIMIT ?

-- name: load_ready_in
-- Some ready jobs of one line, in any order.
SELECT row, id, queue, state FROM jobs INDEXED BY jobs_ready
WHERE state = 'ready' AND hold IS NULL AND queue = ? LIMIT ?

-- name: next_line
-- The next line between two names with ready jobs that need not run alone.
SELECT queue FROM jobs INDEXED BY jobs_ready
WHERE state = 'ready' AND hold IS NULL AND suspect = 0 AND queue > ? AND queue < ? ORDER BY queue LIMIT 1

-- name: next_suspect_line
-- The next line between two names with ready jobs that must run alone. The index is named because
-- the planner would rather scan all ready jobs.
SELECT queue FROM jobs INDEXED BY jobs_suspect
WHERE suspect = 1 AND state = 'ready' AND hold IS NULL AND queue > ? AND queue < ? ORDER BY queue LIMIT 1
