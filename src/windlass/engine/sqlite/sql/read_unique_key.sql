-- The unique key of one job.
SELECT unique_key FROM jobs WHERE id = ?
