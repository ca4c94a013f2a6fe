-- Declare a session dead (1), or that it holds nothing more either (2); the row is kept until an
-- instant, so that its beats are answered.
INSERT INTO sessions (session, expires_ms, gone) VALUES (?1, ?2, ?3)
ON CONFLICT (session) DO UPDATE SET expires_ms = excluded.expires_ms, gone = excluded.gone, info = x''
