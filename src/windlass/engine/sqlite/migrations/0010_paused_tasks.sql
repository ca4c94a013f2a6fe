-- Jobs of paused tasks that a claim took out of their line.
CREATE INDEX jobs_paused ON jobs (task) WHERE hold = 'paused';
