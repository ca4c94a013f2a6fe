-- A claim under this nonce that is still on its way must find nothing.
INSERT INTO sessions (session, expires_ms, last_nonce) VALUES (?1, ?2, ?3)
ON CONFLICT (session) DO UPDATE SET last_nonce = max(last_nonce, excluded.last_nonce)
