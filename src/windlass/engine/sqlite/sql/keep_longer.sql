-- The purge comes again when the period of a unique key is over.
UPDATE jobs SET keep_until_ms = ?2 WHERE row = ?1
