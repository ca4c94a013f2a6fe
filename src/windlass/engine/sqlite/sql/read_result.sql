-- The stored result of one job.
SELECT result FROM jobs WHERE row = ?
