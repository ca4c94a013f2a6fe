-- The instant of the next due job.
SELECT min(due_ms) FROM jobs WHERE due_ms IS NOT NULL
