-- What an operator asks of a session: its heartbeats return it.
ALTER TABLE sessions ADD COLUMN command TEXT NOT NULL DEFAULT 'run';

-- Small records by name, which change by compare-and-set.
CREATE TABLE documents (
    row INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    revision TEXT NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (kind, key)
) STRICT;

-- Who changed what. Rows are given in turn and removed from the first on, so that they have no gaps:
-- the first and the last row tell how many there are.
CREATE TABLE audit (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    at_ms INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
