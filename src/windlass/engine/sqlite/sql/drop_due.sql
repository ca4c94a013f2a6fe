-- A job that does not wait for an instant has none.
UPDATE jobs SET due_ms = NULL WHERE row = ?
