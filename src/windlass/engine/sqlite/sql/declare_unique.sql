-- Store the settings of its unique key with a new job.
UPDATE jobs SET unique_key = ?2, unique_until = ?3, period_until_ms = ?4 WHERE row = ?1
