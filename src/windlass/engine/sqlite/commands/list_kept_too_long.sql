-- Finished jobs that the purge should visit.
SELECT row, queue, state, finished_ms, result IS NOT NULL
FROM jobs WHERE keep_until_ms <= ? ORDER BY keep_until_ms LIMIT ?
