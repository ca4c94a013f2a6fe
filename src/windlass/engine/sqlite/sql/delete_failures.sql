-- Remove the history of a removed job.
DELETE FROM failures WHERE job = ?
