-- The outbox of windlass, version 1: jobs that transactions have enqueued, until a worker relays them.
CREATE SCHEMA windlass_outbox;

CREATE TABLE windlass_outbox.jobs (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL,
    body bytea NOT NULL,
    created_ms bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    due_ms bigint NOT NULL DEFAULT 0, -- by the clock of this database; 0 is now
    tries integer NOT NULL DEFAULT 0, -- relays that the engine refused
    error text -- why the engine refused the last one
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE INDEX jobs_fresh ON windlass_outbox.jobs (position) WHERE due_ms = 0;
CREATE INDEX jobs_postponed ON windlass_outbox.jobs (due_ms) WHERE due_ms > 0;

CREATE TABLE windlass_outbox.format (version integer PRIMARY KEY);
INSERT INTO windlass_outbox.format VALUES (1);
