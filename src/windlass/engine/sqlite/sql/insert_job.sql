-- Store a new job, ready or scheduled. A known id is left as it is.
INSERT INTO jobs (row, id, task, queue, rank, place, state, created_ms, ready_ms, due_ms, expires_ms)
VALUES (?1, ?2, ?3, ?4, ?5, ?1, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (id) DO NOTHING
