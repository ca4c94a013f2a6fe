-- Jobs that wait for an instant, from one on.
SELECT due_ms, row, id, queue, state FROM jobs
WHERE due_ms IS NOT NULL AND (due_ms, row) > (?, ?) ORDER BY due_ms, row LIMIT ?
