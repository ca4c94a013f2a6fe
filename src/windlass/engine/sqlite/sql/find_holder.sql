-- The latest job under a unique key, and all columns that decide whether it holds the key.
SELECT jobs.id, jobs.state, jobs.unique_until, coalesce(jobs.period_until_ms, 0), jobs.expires_ms
FROM unique_keys JOIN jobs ON jobs.id = unique_keys.id AND jobs.unique_key = unique_keys.key
WHERE unique_keys.task = ? AND unique_keys.key = ?
