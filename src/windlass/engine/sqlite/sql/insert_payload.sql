-- Store the envelope of a new job.
INSERT INTO payloads (job, body) VALUES (?, ?)
