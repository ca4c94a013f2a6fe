-- How many jobs of one line are still to be run.
SELECT coalesce(sum(number), 0) FROM counters
WHERE queue = ? AND state IN ('waiting', 'scheduled', 'ready', 'retrying')
