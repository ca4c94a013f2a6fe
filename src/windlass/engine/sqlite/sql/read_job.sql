-- The record of one job, for display.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       result_until_ms, result IS NOT NULL, unique_key, row
FROM jobs WHERE id = ?
