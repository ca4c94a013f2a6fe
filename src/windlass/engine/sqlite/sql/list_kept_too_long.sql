-- Finished jobs that the purge should visit, and how many bytes each has.
SELECT row, id, queue, state, finished_ms, result IS NOT NULL, unique_key, period_until_ms,
       coalesce((SELECT length(body) FROM payloads WHERE job = jobs.row), 0)
           + coalesce(length(result), 0) + coalesce(length(progress), 0)
           + (SELECT coalesce(sum(length(error)), 0) FROM failures WHERE job = jobs.row)
FROM jobs WHERE keep_until_ms <= ? ORDER BY keep_until_ms LIMIT ?
