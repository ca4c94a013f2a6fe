-- Some of the jobs that a session holds.
SELECT id FROM jobs WHERE state = 'running' AND session = ?1 LIMIT ?2
