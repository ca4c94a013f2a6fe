-- Due schedules, the earliest first.
SELECT name, revision, due_ms, body, note, watched
FROM schedules JOIN schedule_bodies ON schedule = row
WHERE due_ms <= ?1 AND name NOT IN (SELECT value FROM json_each(?2))
ORDER BY due_ms, name LIMIT ?3
