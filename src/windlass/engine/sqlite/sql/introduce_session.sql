-- Store the info of a session; a new session lives from now on, until an instant.
INSERT INTO sessions (session, expires_ms, info) VALUES (?1, ?2, ?3)
ON CONFLICT (session) DO UPDATE SET info = excluded.info
