-- Groups of dead jobs.

-- name: add_to_dead_group
-- Count a dead job in its group; return the number of the group.
INSERT INTO dead_groups (fingerprint, release, queue, task, jobs) VALUES (?1, ?2, ?3, ?4, 1)
ON CONFLICT (fingerprint, release, queue, task) DO UPDATE SET jobs = jobs + 1 RETURNING number

-- name: add_death
-- Store the group of a dead job.
INSERT INTO deaths (job, dead_group, at_ms) VALUES (?1, ?2, ?3)

-- name: remove_death
-- Forget the group of a job; return its number.
DELETE FROM deaths WHERE job = ?1 RETURNING dead_group

-- name: take_from_dead_group
-- Count one dead job less in a group.
UPDATE dead_groups SET jobs = jobs - 1 WHERE number = ?1

-- name: forget_dead_group
-- Forget a group without jobs.
DELETE FROM dead_groups WHERE number = ?1 AND jobs <= 0

-- name: largest_dead_groups
-- The largest groups, with the first and the last death of each. Two seeks for each group.
SELECT fingerprint, release, queue, task, jobs,
       (SELECT at_ms FROM deaths INDEXED BY deaths_by_group WHERE dead_group = number ORDER BY at_ms, job LIMIT 1),
       (SELECT job FROM deaths INDEXED BY deaths_by_group WHERE dead_group = number
        ORDER BY at_ms DESC, job DESC LIMIT 1)
FROM dead_groups INDEXED BY dead_groups_size WHERE jobs > 0 ORDER BY jobs DESC LIMIT ?1

-- name: dead_groups_of
-- The groups of a fingerprint, with the first and the last death of each. Two seeks for each group.
SELECT fingerprint, release, queue, task, jobs,
       (SELECT at_ms FROM deaths INDEXED BY deaths_by_group WHERE dead_group = number ORDER BY at_ms, job LIMIT 1),
       (SELECT job FROM deaths INDEXED BY deaths_by_group WHERE dead_group = number
        ORDER BY at_ms DESC, job DESC LIMIT 1)
FROM dead_groups WHERE fingerprint = ?2 AND jobs > 0 LIMIT ?1

-- name: read_death
-- The id of a dead job, and when it died.
SELECT id, at_ms FROM jobs JOIN deaths ON deaths.job = jobs.row WHERE jobs.row = ?1

-- name: list_group_numbers
-- The groups of a fingerprint, perhaps only of a release, queue or task.
SELECT number FROM dead_groups
WHERE fingerprint = ?1 AND (?2 IS NULL OR release = ?2) AND (?3 IS NULL OR queue = ?3) AND (?4 IS NULL OR task = ?4)

-- name: find_deaths
-- A stretch of the deaths of a group, the latest first, before an instant and a row. In two parts, because a
-- comparison of both columns would read all deaths of one instant.
SELECT at_ms, job FROM deaths INDEXED BY deaths_by_group WHERE dead_group = ?1 AND at_ms = ?2 AND job < ?3
UNION ALL
SELECT at_ms, job FROM deaths INDEXED BY deaths_by_group WHERE dead_group = ?1 AND at_ms < ?2
ORDER BY at_ms DESC, job DESC LIMIT ?4

-- name: read_job_at
-- The record of one job, by its row.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row
FROM jobs WHERE row = ?1
