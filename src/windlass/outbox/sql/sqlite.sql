-- The statements of producers, relays and operators on SQLite.

-- name: insert
-- The rows follow: ($1, $2), ($3, $4) and so on.
INSERT INTO windlass_outbox_jobs (id, body) VALUES

-- name: has_rows
SELECT EXISTS (SELECT 1 FROM windlass_outbox_jobs WHERE due_ms = 0)
    OR EXISTS (
        SELECT 1 FROM windlass_outbox_jobs
        WHERE due_ms > 0
            AND due_ms <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
    )

-- name: next_fresh
SELECT position, length(body) FROM windlass_outbox_jobs
WHERE due_ms = 0
ORDER BY position LIMIT ?

-- name: next_postponed
SELECT position, length(body) FROM windlass_outbox_jobs
WHERE due_ms > 0 AND due_ms <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
ORDER BY due_ms LIMIT ?

-- name: lease
UPDATE windlass_outbox_jobs
SET due_ms = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) + ?
WHERE position = ?

-- name: read
SELECT position, id, body,
    max(0, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - created_ms), tries
FROM windlass_outbox_jobs
WHERE position = ?

-- name: give_back
UPDATE windlass_outbox_jobs SET due_ms = 0 WHERE position = ?

-- name: delete
DELETE FROM windlass_outbox_jobs WHERE position = ?

-- name: postpone
UPDATE windlass_outbox_jobs
SET due_ms = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) + ?,
    tries = tries + 1,
    error = ?
WHERE position = ?

-- name: count
SELECT count(*), coalesce(sum(tries > 0), 0)
FROM (SELECT tries FROM windlass_outbox_jobs ORDER BY position LIMIT ?)

-- name: oldest
SELECT max(0, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - created_ms)
FROM windlass_outbox_jobs
WHERE due_ms = 0
ORDER BY position LIMIT 1

-- name: first_refused
SELECT id, tries, error
FROM (SELECT position, id, tries, error FROM windlass_outbox_jobs ORDER BY position LIMIT ?)
WHERE tries > 0
ORDER BY position LIMIT 1

-- name: has_tables
SELECT count(*) FROM sqlite_master WHERE name = 'windlass_outbox_format'

-- name: version
SELECT max(version) FROM windlass_outbox_format
