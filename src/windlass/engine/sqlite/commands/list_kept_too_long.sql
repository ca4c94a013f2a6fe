-- Finished jobs that the purge should visit.
SELECT row, id, queue, state, finished_ms, result IS NOT NULL, unique_key, period_until_ms
FROM jobs WHERE keep_until_ms <= ? ORDER BY keep_until_ms LIMIT ?
