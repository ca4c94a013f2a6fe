-- A job that has not ended is not visited by the purge.
UPDATE jobs SET keep_until_ms = NULL WHERE row = ?
