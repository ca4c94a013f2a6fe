-- Lines of queues, and the purge of a queue.

-- name: list_waiting_later
-- Jobs that wait for an instant, after an instant and row.
SELECT due_ms, row, id, queue, state FROM windlass.jobs
WHERE due_ms IS NOT NULL AND (due_ms, row) > ($1::bigint, $2::bigint) ORDER BY due_ms, row LIMIT $3 FOR UPDATE

-- name: load_ready_in
-- Some ready jobs of one line.
SELECT row, id, queue, state FROM windlass.jobs
WHERE state = 'ready' AND hold IS NULL AND queue = $1 ORDER BY suspect, rank, place LIMIT $2 FOR UPDATE SKIP LOCKED

-- name: next_ready_line
-- The next line between two names that has ready jobs.
SELECT queue FROM windlass.jobs
WHERE state = 'ready' AND hold IS NULL AND queue > $1 AND queue < $2 ORDER BY queue LIMIT 1
