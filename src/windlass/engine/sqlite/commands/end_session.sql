-- Declare a session dead; the row is kept until an instant, so that its beats are answered.
INSERT INTO sessions (session, expires_ms, gone) VALUES (?1, ?2, 1)
ON CONFLICT (session) DO UPDATE SET expires_ms = excluded.expires_ms, gone = 1
