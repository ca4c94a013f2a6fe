-- Write back everything that a move may have changed.
UPDATE jobs
SET place = ?2, state = ?3, hold = ?4, reason = ?5, suspect = ?6, cancel_requested = ?7, attempt = ?8, starts = ?9,
    crashes = ?10, losses = ?11, interruptions = ?12, snoozes = ?13, strays = ?14, ready_ms = ?15, due_ms = ?16,
    expires_ms = ?17, finished_ms = ?18, keep_until_ms = ?19, result_until_ms = ?20, session = ?21, token = ?22,
    last_token = ?23, last_event = ?24, progress = ?25, result = ?26
WHERE row = ?1
