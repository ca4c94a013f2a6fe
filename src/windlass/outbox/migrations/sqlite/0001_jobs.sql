-- The outbox of windlass, version 1: jobs that transactions have enqueued, until a worker relays them.
CREATE TABLE windlass_outbox_jobs (
    position INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice: a relay deletes by it
    id TEXT NOT NULL,
    body BLOB NOT NULL,
    created_ms INTEGER NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    due_ms INTEGER NOT NULL DEFAULT 0, -- by the clock of this machine; 0 is now
    tries INTEGER NOT NULL DEFAULT 0, -- relays that the engine refused
    error TEXT -- why the engine refused the last one
);

CREATE INDEX windlass_outbox_jobs_fresh ON windlass_outbox_jobs (position) WHERE due_ms = 0;
CREATE INDEX windlass_outbox_jobs_postponed ON windlass_outbox_jobs (due_ms) WHERE due_ms > 0;

CREATE TABLE windlass_outbox_format (version INTEGER PRIMARY KEY);
INSERT INTO windlass_outbox_format VALUES (1);
