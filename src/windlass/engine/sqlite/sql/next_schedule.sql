-- When the next schedule is due that is not yet.
SELECT min(due_ms) FROM schedules WHERE due_ms > ?
