-- The job that an idempotency key belongs to, while it is remembered.
SELECT id, fingerprint FROM idempotency WHERE task = ? AND key = ? AND expires_ms > ?
