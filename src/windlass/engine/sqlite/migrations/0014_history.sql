-- How many jobs were enqueued, by queue (without labels) and task. The total of all jobs is the sum of
-- these, and of what `totals` counted before.
CREATE TABLE enqueued (
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    number INTEGER NOT NULL,
    sampled INTEGER NOT NULL DEFAULT 0,  -- how many of them the history has
    grown_ms INTEGER NOT NULL,           -- when the history got the last of them
    PRIMARY KEY (queue, task)
) STRICT, WITHOUT ROWID;

-- The history of queues and tasks, by minute (span 0) and by hour (span 1). `at_ms` is its begin.
CREATE TABLE measures (
    span INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    counts TEXT NOT NULL,                -- an array of integers, as windlass.core.history lays them out
    PRIMARY KEY (span, at_ms, queue, task)
) STRICT, WITHOUT ROWID;
CREATE TABLE samples (
    span INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    queue TEXT NOT NULL,
    ready INTEGER NOT NULL,
    scheduled INTEGER NOT NULL,
    running INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    oldest_ready_ms INTEGER NOT NULL,
    PRIMARY KEY (span, at_ms, queue)
) STRICT, WITHOUT ROWID;

-- Which reports were added: the number of the last one of each reporter.
CREATE TABLE reporters (
    reporter TEXT PRIMARY KEY,
    number INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX reporters_expiry ON reporters (expires_ms);

-- The minute of the last sample.
ALTER TABLE meta ADD COLUMN sampled_ms INTEGER NOT NULL DEFAULT 0;
