-- Store a changed schedule; without a body, the stored one stays.
INSERT INTO schedules (name, revision, due_ms, note, watched) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (name) DO UPDATE SET revision = ?2, due_ms = ?3, note = ?4, watched = ?5
RETURNING row
