-- Forget idempotency keys that ran out, a bounded number.
DELETE FROM idempotency
WHERE (task, key) IN (SELECT task, key FROM idempotency WHERE expires_ms <= ? LIMIT ?)
