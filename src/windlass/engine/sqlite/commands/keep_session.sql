-- Let a session live until an instant; one that was declared dead stays dead.
INSERT INTO sessions (session, expires_ms) VALUES (?1, ?2)
ON CONFLICT (session) DO UPDATE SET expires_ms = excluded.expires_ms WHERE gone = 0
