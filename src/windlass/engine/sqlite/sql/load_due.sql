-- The next jobs whose instant has come, the earliest first.
SELECT row, id, task, queue, place, state, hold, reason, suspect, cancel_requested, attempt, starts, crashes, losses,
       interruptions, snoozes, strays, ready_ms, due_ms, expires_ms, finished_ms, keep_until_ms, result_until_ms, session, token,
       last_token, last_event, progress, result
FROM jobs WHERE due_ms <= ? ORDER BY due_ms, row LIMIT ?
