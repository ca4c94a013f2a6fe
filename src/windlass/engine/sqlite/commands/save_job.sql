-- Write back everything that a move may have changed.
UPDATE jobs
SET place = ?2, state = ?3, hold = ?4, reason = ?5, suspect = ?6, cancel_requested = ?7, attempt = ?8, starts = ?9,
    crashes = ?10, losses = ?11, interruptions = ?12, snoozes = ?13, strays = ?14, due_ms = ?15, expires_ms = ?16,
    finished_ms = ?17, keep_until_ms = ?18, result_until_ms = ?19, session = ?20, token = ?21, last_token = ?22,
    progress = ?23, result = ?24
WHERE row = ?1
