-- The next schedules by name.
SELECT name, revision, due_ms, body, note, watched
FROM schedules JOIN schedule_bodies ON schedule = row
WHERE name > ? ORDER BY name LIMIT ?
