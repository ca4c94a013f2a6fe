-- When the next thing is due.
SELECT min(due_ms) FROM jobs WHERE due_ms IS NOT NULL
