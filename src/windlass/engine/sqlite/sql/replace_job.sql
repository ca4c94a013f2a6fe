-- A job that waits takes over the call of another put, with fresh budgets. Its age is kept or forgotten.
UPDATE jobs
SET queue = ?2, rank = ?3 + age * ?12, age = age * ?12, place = ?4, state = ?5, ready_ms = ?6, due_ms = ?7, expires_ms = ?8, unique_until = ?9,
    period_until_ms = ?10, replaced_by = ?11, hold = 'none', suspect = 0, attempt = 0, starts = 0, crashes = 0,
    losses = 0, interruptions = 0, snoozes = 0, strays = 0, progress = NULL
WHERE row = ?1
