-- Store what a schedule is from now on. A body that is not given stays.
INSERT INTO schedules (name, revision, due_ms, note, watched) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (name) DO UPDATE SET revision = ?2, due_ms = ?3, note = ?4, watched = ?5
RETURNING row
