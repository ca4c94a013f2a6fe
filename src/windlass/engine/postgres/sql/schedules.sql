-- Schedules.

-- name: delete_schedule
-- Remove a schedule.
DELETE FROM windlass.schedules WHERE row = $1

-- name: delete_schedule_body
-- Remove the body of a schedule.
DELETE FROM windlass.schedule_bodies WHERE schedule = $1

-- name: find_schedule
-- The row and revision of a schedule, by name.
SELECT row, revision FROM windlass.schedules WHERE name = $1 FOR UPDATE

-- name: list_due_schedules
-- Due schedules, the earliest first.
SELECT name, revision, due_ms, body, note, watched
FROM windlass.schedules JOIN windlass.schedule_bodies ON schedule = ANY(ARRAY[row])
WHERE due_ms <= $1 AND name <> ALL ($2::text[])
ORDER BY due_ms, name LIMIT $3

-- name: list_schedules
-- The next schedules by name.
SELECT name, revision, due_ms, body, note, watched
FROM windlass.schedules JOIN windlass.schedule_bodies ON schedule = ANY(ARRAY[row])
WHERE name > $1 ORDER BY name LIMIT $2

-- name: list_unfinished
-- The jobs of an array that exist and have not ended.
SELECT jobs.id FROM unnest($1::text[]) AS given (value) JOIN windlass.jobs ON jobs.id = ANY(ARRAY[given.value])
WHERE state NOT IN ('dead', 'cancelled')

-- name: next_schedule
-- The instant of the next schedule that is not due yet.
SELECT min(due_ms) FROM windlass.schedules WHERE due_ms > $1

-- name: read_schedules
-- The schedules with these names.
SELECT name, revision, due_ms, body, note, watched
FROM unnest($1::text[]) AS given (value) JOIN windlass.schedules ON name = ANY(ARRAY[given.value])
JOIN windlass.schedule_bodies ON schedule = ANY(ARRAY[row])

-- name: save_schedule
-- Store a changed schedule; without a new body, the stored body stays.
INSERT INTO windlass.schedules (name, revision, due_ms, note, watched) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (name) DO UPDATE SET revision = $2, due_ms = $3, note = $4, watched = $5
RETURNING row

-- name: save_schedule_body
-- Store the declaration of a schedule: when it runs, and which call.
INSERT INTO windlass.schedule_bodies (schedule, body) VALUES ($1, $2)
ON CONFLICT (schedule) DO UPDATE SET body = $2
