-- Everything of one job that a move may change, by id.
SELECT row, id, task, queue, place, state, hold, reason, suspect, cancel_requested, attempt, starts, crashes, losses,
       interruptions, snoozes, strays, ready_ms, due_ms, expires_ms, finished_ms, keep_until_ms, result_until_ms, session, token,
       last_token, last_event, progress, result
FROM jobs WHERE id = ?
