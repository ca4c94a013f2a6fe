-- A job is removed: its unique key leads nowhere, unless it leads to another job by now.
DELETE FROM unique_keys
WHERE id = ?1 AND (task, key) = (SELECT task, unique_key FROM jobs WHERE id = ?1)
