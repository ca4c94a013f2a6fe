-- Unique keys. What a job declared stands with it, NULL for most; who was stored last under a key
-- stands in `unique_keys`, and holds it for as long as its state or its period says so.
ALTER TABLE jobs ADD COLUMN unique_key TEXT;
ALTER TABLE jobs ADD COLUMN unique_until TEXT;       -- what ends the hold: start, end or success
ALTER TABLE jobs ADD COLUMN period_until_ms INTEGER; -- but not before this instant
ALTER TABLE jobs ADD COLUMN replaced_by TEXT;        -- the id of the put whose call it has now

CREATE INDEX jobs_replaced ON jobs (replaced_by) WHERE replaced_by IS NOT NULL;

CREATE TABLE unique_keys (
    task TEXT NOT NULL,
    key TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (task, key)
) STRICT, WITHOUT ROWID;
