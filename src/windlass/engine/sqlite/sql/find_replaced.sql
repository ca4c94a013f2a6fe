-- The job that took over the call of this put, and may have that of a later one by now.
SELECT id FROM jobs WHERE replaced_by = ?1
UNION ALL
SELECT job FROM replaced_puts WHERE id = ?1 AND expires_ms > ?2
