-- Completed parts of jobs.

-- name: add_step
-- Store a step of a job.
INSERT INTO steps (job, name, value) VALUES (?, ?, ?)

-- name: delete_steps
-- Remove the steps of a job.
DELETE FROM steps WHERE job = ?

-- name: find_held_row
-- The row of a job whose token is current.
SELECT row FROM jobs WHERE id = ? AND token = ?

-- name: list_steps
-- The steps of a job.
SELECT name, value FROM steps WHERE job = ? ORDER BY name

-- name: measure_steps
-- The number of steps of a job, the bytes of their values, and whether one has this name.
SELECT count(*), coalesce(sum(length(value)), 0), coalesce(max(name = ?2), 0) FROM steps WHERE job = ?1
