-- The schedules that have these names.
SELECT name, revision, due_ms, body, note, watched
FROM json_each(?) AS given JOIN schedules ON name = given.value
JOIN schedule_bodies ON schedule = row
