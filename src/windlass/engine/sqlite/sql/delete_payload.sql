-- Remove the envelope of a removed job.
DELETE FROM payloads WHERE job = ?
