-- Whether one queue has a job that may be claimed.
SELECT EXISTS (
    SELECT 1 FROM jobs WHERE state = 'ready' AND hold = 'none' AND queue = ? AND suspect = 0)
