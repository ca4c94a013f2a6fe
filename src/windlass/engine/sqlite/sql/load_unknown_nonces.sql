-- Jobs that a session has held for a while under any token. A start in the future counts as old:
-- the clock was set back since.
SELECT row, id, task, queue, place, state, hold, reason, suspect, cancel_requested, attempt, starts, crashes, losses,
       interruptions, snoozes, strays, ready_ms, due_ms, expires_ms, finished_ms, keep_until_ms, result_until_ms, session, token,
       last_token, last_event, progress, result
FROM jobs WHERE state = 'running' AND session = ?1 AND (started_ms <= ?2 OR started_ms > ?3) ORDER BY row
