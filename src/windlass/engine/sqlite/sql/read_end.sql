-- The state of one job, with its result while that is stored.
SELECT task, state, reason, finished_ms, CASE WHEN result_until_ms > ? THEN result END, row FROM jobs WHERE id = ?
