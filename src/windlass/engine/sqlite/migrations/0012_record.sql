-- A record stores nothing that is a default or that other columns say. A small call stands in the
-- record itself. See docs/decisions/0054-sqlite-record.md.
DROP INDEX jobs_ready;
DROP INDEX jobs_suspect;
DROP INDEX jobs_parked;

ALTER TABLE jobs ADD COLUMN held TEXT;           -- why a ready job cannot be claimed; NULL for most
ALTER TABLE jobs ADD COLUMN last_end INTEGER;    -- which claim its own holder ended last, and how
ALTER TABLE jobs ADD COLUMN call BLOB;           -- the envelope; NULL: it stands in `payloads`

UPDATE jobs SET held = nullif(hold, 'none'), ready_ms = nullif(ready_ms, created_ms)
WHERE hold <> 'none' OR ready_ms = created_ms;

ALTER TABLE jobs DROP COLUMN hold;               -- 'none' for most
ALTER TABLE jobs DROP COLUMN result_until_ms;    -- the same as keep_until_ms while there is a result
ALTER TABLE jobs DROP COLUMN last_token;         -- now in last_end
ALTER TABLE jobs DROP COLUMN last_event;
ALTER TABLE jobs RENAME COLUMN held TO hold;

CREATE INDEX jobs_ready ON jobs (queue, suspect, rank, place) WHERE state = 'ready' AND hold IS NULL;
CREATE INDEX jobs_suspect ON jobs (queue, rank, place) WHERE suspect = 1 AND state = 'ready' AND hold IS NULL;
CREATE INDEX jobs_parked ON jobs (task, row) WHERE hold IS NOT NULL;
