-- Schedules, found by the instant at which to look at them again. What they enqueue may be large and
-- seldom changes, so it stands in a table of its own.
CREATE TABLE schedules (
    row INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    revision TEXT NOT NULL,
    due_ms INTEGER,
    note BLOB NOT NULL,
    watched TEXT NOT NULL               -- ids of jobs, as a JSON array
) STRICT;
CREATE INDEX schedules_due ON schedules (due_ms, name) WHERE due_ms IS NOT NULL;

CREATE TABLE schedule_bodies (
    schedule INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
