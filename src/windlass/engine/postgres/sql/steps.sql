-- Completed parts of jobs.

-- name: add_step
-- Store a step of a job, which this transaction has locked.
INSERT INTO windlass.steps (job, name, value) VALUES ($1, $2, $3)

-- name: delete_steps
-- Remove the steps of a job.
DELETE FROM windlass.steps WHERE job = $1

-- name: find_held_row
-- The row of a job whose token is current.
SELECT row FROM windlass.jobs WHERE id = $1 AND token = $2

-- name: list_steps
-- The steps of a job.
SELECT name, value FROM windlass.steps WHERE job = $1 ORDER BY name

-- name: measure_steps
-- The number of steps of a job, the bytes of their values, and whether one has this name.
SELECT count(*), coalesce(sum(octet_length(value)), 0)::bigint, coalesce(bool_or(name = $2), false)
FROM windlass.steps WHERE job = $1
