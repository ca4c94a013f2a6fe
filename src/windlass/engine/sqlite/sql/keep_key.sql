-- Remember an idempotency key; an entry that ran out is overwritten.
INSERT INTO idempotency (task, key, id, fingerprint, expires_ms) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (task, key) DO UPDATE
SET id = excluded.id, fingerprint = excluded.fingerprint, expires_ms = excluded.expires_ms
