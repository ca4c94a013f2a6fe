-- Whether any queue has a job that may be claimed by those who take no suspects.
SELECT EXISTS (SELECT 1 FROM jobs WHERE state = 'ready' AND hold = 'none' AND suspect = 0)
