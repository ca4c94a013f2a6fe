-- Remember until an instant the put whose call a job has now, before another one replaces it.
INSERT INTO replaced_puts (id, job, expires_ms)
SELECT replaced_by, id, ?2 FROM jobs WHERE row = ?1 AND replaced_by IS NOT NULL
ON CONFLICT (id) DO UPDATE SET job = excluded.job, expires_ms = excluded.expires_ms
