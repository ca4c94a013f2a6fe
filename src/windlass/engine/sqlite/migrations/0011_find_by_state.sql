-- Pages of jobs go from state to state, each in the order of an index. Of ended jobs, one index serves
-- the pages and the purge.
CREATE INDEX jobs_ended ON jobs (state, keep_until_ms, row) WHERE keep_until_ms IS NOT NULL;
DROP INDEX jobs_kept;
DROP INDEX jobs_dead;

-- Jobs that are held, for any reason: for pages, and for workers that take them over.
CREATE INDEX jobs_parked ON jobs (task, row) WHERE hold <> 'none';
DROP INDEX jobs_unroutable;
DROP INDEX jobs_paused;

-- With the order of each line, as jobs_ready has it.
DROP INDEX jobs_suspect;
CREATE INDEX jobs_suspect ON jobs (queue, rank, place) WHERE suspect = 1 AND state = 'ready' AND hold = 'none';
