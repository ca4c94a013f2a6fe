-- A session leased jobs under a nonce: it lives until an instant, and earlier nonces are used up.
INSERT INTO sessions (session, expires_ms, last_nonce) VALUES (?1, ?2, ?3)
ON CONFLICT (session) DO UPDATE SET expires_ms = excluded.expires_ms, last_nonce = excluded.last_nonce
