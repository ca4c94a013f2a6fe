-- The first stored format. `windlass` stands for the schema that the url names.
--
-- A job that has not succeeded has a record in `jobs`. A success moves it into `ended`, a ring of
-- partitions that are emptied as a whole, so that `jobs` stays small. `row` and `place` come from one
-- sequence, which has gaps; `rank` is the age less the priority, so that both sort upwards.

CREATE SEQUENCE windlass.numbers;

CREATE TABLE windlass.meta (
    one smallint PRIMARY KEY CHECK (one = 1),
    format integer NOT NULL,                -- the number of the last migration
    identity text NOT NULL,                 -- differs after the tables were removed and made again
    last_seen_ms bigint,                    -- the last beat, or claim that had something to do
    reap_after_ms bigint NOT NULL DEFAULT 0, -- no session is declared dead before this
    longest_lease_ms bigint NOT NULL DEFAULT 0, -- see core/longest_lease.py
    longest_until_ms bigint NOT NULL DEFAULT 0,
    next_lease_ms bigint NOT NULL DEFAULT 0,
    sampled_ms bigint NOT NULL DEFAULT 0,   -- the minute of the last sample
    queues text NOT NULL DEFAULT ''         -- settings of queues, as JSON
);
INSERT INTO windlass.meta (one, format, identity) VALUES (1, 1, gen_random_uuid()::text);

CREATE TABLE windlass.jobs (
    row bigint PRIMARY KEY,
    place bigint NOT NULL,
    created_ms bigint NOT NULL,
    ready_ms bigint,                        -- when it took its place in line; NULL: when it was created
    due_ms bigint,                          -- set while it waits for an instant
    expires_ms bigint,
    started_ms bigint,
    finished_ms bigint,
    keep_until_ms bigint,                   -- set while it is dead or cancelled: next visit of the purge
    last_end bigint,                        -- which claim its own holder ended last, and how
    period_until_ms bigint,                 -- the unique key is held at least until this instant
    rank integer NOT NULL,
    age integer NOT NULL DEFAULT 0,         -- the age of its queue when it took its place
    attempt integer NOT NULL DEFAULT 0,
    starts integer NOT NULL DEFAULT 0,
    crashes integer NOT NULL DEFAULT 0,
    losses integer NOT NULL DEFAULT 0,
    interruptions integer NOT NULL DEFAULT 0,
    snoozes integer NOT NULL DEFAULT 0,
    strays integer NOT NULL DEFAULT 0,
    suspect smallint NOT NULL DEFAULT 0,
    cancel_requested smallint NOT NULL DEFAULT 0,
    id text COLLATE "C" NOT NULL UNIQUE,
    task text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,        -- the line: a queue, with the labels that the job requires
    state text COLLATE "C" NOT NULL,
    hold text COLLATE "C",                  -- why a ready job cannot be claimed
    reason text COLLATE "C",
    session text COLLATE "C",               -- that holds the job, or held it last
    token text COLLATE "C",                 -- set exactly while it is running
    unique_key text COLLATE "C",
    unique_until text COLLATE "C",          -- what ends the hold: start, end or success
    replaced_by text COLLATE "C",           -- the id of the put whose call it has now
    call bytea NOT NULL,                    -- the envelope
    progress bytea,
    result bytea,
    held_because bytea,
    CHECK ((state = 'running') = (token IS NOT NULL)),  -- else no session would end the job
    CHECK (state <> 'succeeded')
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 5000,
    toast.autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX jobs_ready ON windlass.jobs (queue, suspect, rank, place) WHERE state = 'ready' AND hold IS NULL;
CREATE INDEX jobs_suspect ON windlass.jobs (queue, rank, place) WHERE suspect = 1 AND state = 'ready' AND hold IS NULL;
CREATE INDEX jobs_held ON windlass.jobs (session, token) WHERE state = 'running';
CREATE INDEX jobs_due ON windlass.jobs (due_ms, row) WHERE due_ms IS NOT NULL;
CREATE INDEX jobs_parked ON windlass.jobs (task, row) WHERE hold IS NOT NULL;
CREATE INDEX jobs_ended ON windlass.jobs (state, keep_until_ms, row) WHERE keep_until_ms IS NOT NULL;
CREATE INDEX jobs_replaced ON windlass.jobs (replaced_by) WHERE replaced_by IS NOT NULL;

-- Jobs that succeeded. `slot` is the partition: when the record expires.
CREATE TABLE windlass.ended (
    row bigint NOT NULL,
    created_ms bigint NOT NULL,
    ready_ms bigint,
    expires_ms bigint,
    started_ms bigint,
    finished_ms bigint NOT NULL,
    keep_until_ms bigint NOT NULL,
    result_until_ms bigint NOT NULL,        -- the result is gone from then on; the record stays
    last_end bigint NOT NULL,
    period_until_ms bigint,
    priority integer NOT NULL,
    attempt integer NOT NULL,
    starts integer NOT NULL,
    crashes integer NOT NULL,
    losses integer NOT NULL,
    interruptions integer NOT NULL,
    snoozes integer NOT NULL,
    strays integer NOT NULL,
    slot smallint NOT NULL,
    id text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    session text COLLATE "C",
    unique_key text COLLATE "C",
    unique_until text COLLATE "C",
    call bytea NOT NULL,
    progress bytea,
    result bytea
) PARTITION BY LIST (slot);
CREATE INDEX ended_id ON windlass.ended (id);
CREATE INDEX ended_kept ON windlass.ended (keep_until_ms, row);
CREATE TABLE windlass.ended_0 PARTITION OF windlass.ended FOR VALUES IN (0);
CREATE TABLE windlass.ended_1 PARTITION OF windlass.ended FOR VALUES IN (1);
CREATE TABLE windlass.ended_2 PARTITION OF windlass.ended FOR VALUES IN (2);
CREATE TABLE windlass.ended_3 PARTITION OF windlass.ended FOR VALUES IN (3);
CREATE TABLE windlass.ended_4 PARTITION OF windlass.ended FOR VALUES IN (4);
CREATE TABLE windlass.ended_5 PARTITION OF windlass.ended FOR VALUES IN (5);
CREATE TABLE windlass.ended_6 PARTITION OF windlass.ended FOR VALUES IN (6);
CREATE TABLE windlass.ended_7 PARTITION OF windlass.ended FOR VALUES IN (7);
-- Records that are kept for longer than the ring is long.
CREATE TABLE windlass.ended_later PARTITION OF windlass.ended FOR VALUES IN (8);

CREATE TABLE windlass.failures (
    job bigint NOT NULL,
    number integer NOT NULL,
    at_ms bigint NOT NULL,
    started_ms bigint,
    attempt integer NOT NULL,
    event text COLLATE "C" NOT NULL,
    session text COLLATE "C",
    error bytea NOT NULL,
    PRIMARY KEY (job, number)
);

CREATE TABLE windlass.sessions (
    session text COLLATE "C" PRIMARY KEY,
    expires_ms bigint NOT NULL,
    last_nonce text COLLATE "C" NOT NULL DEFAULT '',
    gone smallint NOT NULL DEFAULT 0,       -- 1: declared dead, for good; 2: and holds nothing more
    command text COLLATE "C" NOT NULL DEFAULT 'run'  -- what its heartbeats return
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX sessions_expiry ON windlass.sessions (gone, expires_ms);
-- What sessions say of themselves, apart from what every claim changes.
CREATE TABLE windlass.introductions (
    session text COLLATE "C" PRIMARY KEY,
    info bytea NOT NULL
);

CREATE TABLE windlass.idempotency (
    task text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    expires_ms bigint NOT NULL,
    PRIMARY KEY (task, key)
);
CREATE INDEX idempotency_expiry ON windlass.idempotency (expires_ms);
CREATE INDEX idempotency_job ON windlass.idempotency (id);

-- The last job that was stored under a unique key. Its state tells whether it holds the key.
CREATE TABLE windlass.unique_keys (
    task text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    PRIMARY KEY (task, key)
);
-- Puts whose call a unique job had, until a later put replaced it.
CREATE TABLE windlass.replaced_puts (
    id text COLLATE "C" PRIMARY KEY,
    job text COLLATE "C" NOT NULL,
    expires_ms bigint NOT NULL
);
CREATE INDEX replaced_puts_expiry ON windlass.replaced_puts (expires_ms);

-- Numbers of records by queue and state (kind 'jobs'), and of events (kind 'total'). A commit only adds
-- rows to `deltas`, so that writers never wait for one row; maintenance adds them up in `counters`.
CREATE TABLE windlass.counters (
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    part text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    PRIMARY KEY (kind, name, part)
);
CREATE TABLE windlass.deltas (
    kind text COLLATE "C" NOT NULL,         -- also 'enqueued': jobs by queue and task
    name text COLLATE "C" NOT NULL,
    part text COLLATE "C" NOT NULL,
    number bigint NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);

-- How many jobs were enqueued, by queue (without labels) and task.
CREATE TABLE windlass.enqueued (
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    sampled bigint NOT NULL DEFAULT 0,      -- how many of them the history has
    grown_ms bigint NOT NULL,               -- when the history got the last of them
    PRIMARY KEY (queue, task)
);

-- The history of queues and tasks, by minute (span 0) and by hour (span 1). `at_ms` is its beginning.
CREATE TABLE windlass.measures (
    span smallint NOT NULL,
    at_ms bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    counts text NOT NULL,                   -- an array of integers, as core/history.py lays them out
    PRIMARY KEY (span, at_ms, queue, task)
);
CREATE TABLE windlass.samples (
    span smallint NOT NULL,
    at_ms bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    ready bigint NOT NULL,
    scheduled bigint NOT NULL,
    running bigint NOT NULL,
    dead bigint NOT NULL,
    oldest_ready_ms bigint NOT NULL,
    PRIMARY KEY (span, at_ms, queue)
);
CREATE TABLE windlass.reporters (
    reporter text COLLATE "C" PRIMARY KEY,
    number bigint NOT NULL,
    expires_ms bigint NOT NULL
);
CREATE INDEX reporters_expiry ON windlass.reporters (expires_ms);

CREATE TABLE windlass.schedules (
    row bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name text COLLATE "C" NOT NULL UNIQUE,
    revision text COLLATE "C" NOT NULL,
    due_ms bigint,
    note bytea NOT NULL,
    watched text[] NOT NULL                 -- ids of jobs
);
CREATE INDEX schedules_due ON windlass.schedules (due_ms, name) WHERE due_ms IS NOT NULL;
CREATE TABLE windlass.schedule_bodies (
    schedule bigint PRIMARY KEY,
    body bytea NOT NULL
);

CREATE TABLE windlass.documents (
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    revision text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (kind, key)
);
CREATE TABLE windlass.audit (
    row bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at_ms bigint NOT NULL,
    id text COLLATE "C" NOT NULL UNIQUE,
    body bytea NOT NULL
);

CREATE TABLE windlass.dead_groups (
    number bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    jobs bigint NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,  -- '' for jobs that died without one
    release text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    UNIQUE (fingerprint, release, queue, task)
);
CREATE INDEX dead_groups_size ON windlass.dead_groups (jobs);
CREATE TABLE windlass.deaths (
    job bigint PRIMARY KEY,
    dead_group bigint NOT NULL,
    at_ms bigint NOT NULL
);
CREATE INDEX deaths_by_group ON windlass.deaths (dead_group, at_ms, job);

-- Wake-ups: see wakeup.sql. Lost in a crash of the server, and written again: workers and callers also poll.
-- Processes that wait for jobs. Each holds the advisory lock of its number, on the connection that listens.
CREATE UNLOGGED TABLE windlass.waiters (
    number bigint PRIMARY KEY,              -- of its channel
    until_ms bigint NOT NULL,
    digest bigint NOT NULL,                 -- of the plans
    plans text NOT NULL                     -- of its idle sessions, as JSON
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
-- Processes that wait for the end of jobs.
CREATE UNLOGGED TABLE windlass.watches (
    id text COLLATE "C" NOT NULL,           -- of the job
    watcher bigint NOT NULL,                -- the number of a channel
    until_ms bigint NOT NULL,
    PRIMARY KEY (id, watcher)
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);
