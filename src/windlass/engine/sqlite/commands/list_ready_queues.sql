-- The queues that have something ready, by jumping from one to the next in the index.
WITH RECURSIVE found (queue) AS (
    SELECT min(queue) FROM jobs WHERE state = 'ready' AND hold = 'none'
    UNION ALL
    SELECT (SELECT min(queue) FROM jobs
            WHERE state = 'ready' AND hold = 'none' AND queue > found.queue)
    FROM found WHERE found.queue IS NOT NULL
)
SELECT queue FROM found WHERE queue IS NOT NULL
