-- Completed parts of jobs, which no later attempt repeats. A job without steps has no rows here.
CREATE TABLE steps (
    job INTEGER NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (job, name)
) STRICT, WITHOUT ROWID;
