-- Completed parts of jobs, which no later attempt repeats. A job without steps has no rows here.
CREATE TABLE windlass.steps (
    job bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (job, name)
);
