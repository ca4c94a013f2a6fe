-- The envelope of one job.
SELECT body FROM payloads WHERE job = ?
