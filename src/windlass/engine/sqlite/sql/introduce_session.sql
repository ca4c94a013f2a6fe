-- Keep what a session says of itself; one that was not known lives from now on, until an instant.
INSERT INTO sessions (session, expires_ms, info) VALUES (?1, ?2, ?3)
ON CONFLICT (session) DO UPDATE SET info = excluded.info
