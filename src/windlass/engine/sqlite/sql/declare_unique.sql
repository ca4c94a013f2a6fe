-- Keep with a new job what it says of its unique key.
UPDATE jobs SET unique_key = ?2, unique_until = ?3, period_until_ms = ?4 WHERE row = ?1
