-- The first stored format.
--
-- A job is split in two: `jobs` holds what changes and what is looked up, `payloads` the envelope
-- that never changes, so that a claim does not rewrite a large payload. `row` and `place` come from
-- the sequence in `meta` and never repeat; `rank` is the negated priority, so that both sort upwards.

CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    sequence INTEGER NOT NULL,
    last_seen_ms INTEGER,               -- the last beat, or claim that had something to do
    reap_after_ms INTEGER NOT NULL      -- no session is declared dead before this
) STRICT;
INSERT INTO meta VALUES (1, 0, NULL, 0);

CREATE TABLE jobs (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    task TEXT NOT NULL,
    queue TEXT NOT NULL,
    rank INTEGER NOT NULL,
    place INTEGER NOT NULL,
    state TEXT NOT NULL,
    hold TEXT NOT NULL DEFAULT 'none',
    reason TEXT,
    suspect INTEGER NOT NULL DEFAULT 0,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0,
    starts INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    interruptions INTEGER NOT NULL DEFAULT 0,
    snoozes INTEGER NOT NULL DEFAULT 0,
    strays INTEGER NOT NULL DEFAULT 0,
    created_ms INTEGER NOT NULL,
    ready_ms INTEGER,                   -- when it took its place in line
    due_ms INTEGER,                     -- set while it waits for an instant
    expires_ms INTEGER,
    started_ms INTEGER,
    finished_ms INTEGER,
    keep_until_ms INTEGER,              -- set while it is finished: next visit of the purge
    result_until_ms INTEGER,
    session TEXT,                       -- who holds it, or held it last
    token TEXT,                         -- set exactly while it is running
    last_token TEXT,                    -- of the claim that was ended by its own holder last,
    last_event TEXT,                    -- and how
    progress BLOB,
    result BLOB,
    CHECK ((state = 'running') = (token IS NOT NULL))  -- the one that would imprison a job
) STRICT;

CREATE INDEX jobs_ready ON jobs (queue, suspect, rank, place) WHERE state = 'ready' AND hold = 'none';
CREATE INDEX jobs_suspect ON jobs (queue) WHERE suspect = 1 AND state = 'ready' AND hold = 'none';
CREATE INDEX jobs_unroutable ON jobs (task) WHERE hold = 'unroutable';
CREATE INDEX jobs_due ON jobs (due_ms, row) WHERE due_ms IS NOT NULL;
CREATE INDEX jobs_held ON jobs (session, token) WHERE state = 'running';
CREATE INDEX jobs_kept ON jobs (keep_until_ms) WHERE keep_until_ms IS NOT NULL;
CREATE INDEX jobs_dead ON jobs (id, task) WHERE state = 'dead';

CREATE TABLE payloads (
    job INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE failures (
    job INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    event TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    session TEXT,
    error BLOB NOT NULL,
    PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    session TEXT PRIMARY KEY,
    expires_ms INTEGER NOT NULL,
    last_nonce TEXT NOT NULL DEFAULT '',
    gone INTEGER NOT NULL DEFAULT 0     -- 1: declared dead, for good; 2: and holds nothing more
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_expiry ON sessions (gone, expires_ms);

CREATE TABLE idempotency (
    task TEXT NOT NULL,
    key TEXT NOT NULL,
    id TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    expires_ms INTEGER NOT NULL,
    PRIMARY KEY (task, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_expiry ON idempotency (expires_ms);
CREATE INDEX idempotency_job ON idempotency (id);

-- How many records there are, kept in the same commit as the records.
CREATE TABLE counters (
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number >= 0),
    PRIMARY KEY (queue, state)
) STRICT, WITHOUT ROWID;

-- How often things happened; these only grow.
CREATE TABLE totals (
    name TEXT PRIMARY KEY,
    number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
