-- Forget puts that were remembered long enough, a bounded number.
DELETE FROM replaced_puts WHERE id IN (SELECT id FROM replaced_puts WHERE expires_ms <= ? LIMIT ?)
