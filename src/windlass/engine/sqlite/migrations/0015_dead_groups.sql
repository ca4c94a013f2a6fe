-- Groups of dead jobs: how many there are with a fingerprint, of a release, queue (without labels) and task.
-- Other jobs have no rows here, and the record of a job stays as it is.
CREATE TABLE dead_groups (
    number INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL,          -- '' for jobs that died without one
    release TEXT NOT NULL,
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    jobs INTEGER NOT NULL,
    UNIQUE (fingerprint, release, queue, task)
) STRICT;
CREATE INDEX dead_groups_size ON dead_groups (jobs);

-- The group of each dead job, and when it died.
CREATE TABLE deaths (
    job INTEGER PRIMARY KEY,
    dead_group INTEGER NOT NULL,
    at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX deaths_by_group ON deaths (dead_group, at_ms, job);

-- Dead jobs with the names of their group: the release is the end of the name of a session.
CREATE VIEW dead_jobs AS
SELECT row, id, task, substr(queue, 1, instr(queue || '+', '+') - 1) AS queue,
       CASE WHEN instr(session, '@') THEN substr(session, instr(session, '@') + 1) ELSE '' END AS release,
       coalesce(finished_ms, 0) AS at_ms
FROM jobs WHERE state = 'dead';

-- Jobs that died before have no fingerprint yet: workers compute it later, some jobs at a time.
INSERT INTO dead_groups (fingerprint, release, queue, task, jobs)
SELECT '', release, queue, task, count(*) FROM dead_jobs GROUP BY release, queue, task;
INSERT INTO deaths (job, dead_group, at_ms)
SELECT row, number, at_ms FROM dead_jobs JOIN dead_groups USING (release, queue, task) WHERE fingerprint = '';
