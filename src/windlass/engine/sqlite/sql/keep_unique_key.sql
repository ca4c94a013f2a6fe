-- Point a unique key to this job.
INSERT INTO unique_keys (task, key, id) VALUES (?, ?, ?)
ON CONFLICT (task, key) DO UPDATE SET id = excluded.id
