-- The envelope of a call that takes the place of another.
INSERT INTO payloads (job, body) VALUES (?1, ?2) ON CONFLICT (job) DO UPDATE SET body = ?2
