-- The history of queues and tasks, and the counters of enqueued jobs.

-- name: add_enqueued
-- Count jobs of a queue and task.
INSERT INTO windlass.enqueued (queue, task, number, grown_ms) VALUES ($1, $2, $3, $4)
ON CONFLICT (queue, task) DO UPDATE SET number = enqueued.number + $3

-- name: list_pairs
-- The queues and tasks whose jobs are counted.
SELECT queue, task FROM windlass.enqueued

-- name: list_enqueued
-- How many jobs were enqueued, by queue and task: first those that have a counter. A put that repeats an ended job leaves
-- deltas that add up to zero.
SELECT queue, task, sum(number)::bigint FROM (
    SELECT queue, task, number, 0 AS position FROM windlass.enqueued
    UNION ALL
    SELECT name, part, number, 1 FROM windlass.deltas WHERE kind = 'enqueued'
) AS found GROUP BY queue, task HAVING sum(number) > 0 ORDER BY min(position), queue, task

-- name: list_growth
-- How many enqueued jobs the history does not have yet, by queue and task.
SELECT queue, task, number - sampled FROM windlass.enqueued WHERE number > sampled

-- name: note_growth
-- Note that the history has all enqueued jobs.
UPDATE windlass.enqueued SET sampled = number, grown_ms = $1 WHERE number > sampled

-- name: list_unused_pairs
-- Pairs of queue and task for which no job was enqueued for long.
SELECT queue, task, number FROM windlass.enqueued WHERE grown_ms <= $1

-- name: forget_pair
-- Forget the counter of a queue and task.
DELETE FROM windlass.enqueued WHERE queue = $1 AND task = $2

-- name: find_measures
-- The counts of queues and tasks in a minute or hour: arrays of queues and of their tasks.
SELECT queue, task, counts FROM windlass.measures
WHERE span = $1 AND at_ms = $2 AND (queue, task) IN (SELECT * FROM unnest($3::text[], $4::text[]))

-- name: count_measures
-- How many queues and tasks a minute or hour has, without the pair of all others.
SELECT count(*) FROM windlass.measures WHERE span = $1 AND at_ms = $2 AND NOT (queue = $3 AND task = $3)

-- name: save_measure
-- Write the counts of one queue and task in a minute or hour.
INSERT INTO windlass.measures (span, at_ms, queue, task, counts) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (span, at_ms, queue, task) DO UPDATE SET counts = $5

-- name: list_measures
-- Measures from an instant on, the earliest first.
SELECT at_ms, queue, task, counts FROM windlass.measures WHERE span = $1 AND at_ms >= $2 ORDER BY at_ms, queue, task LIMIT $3

-- name: list_old_measures
-- Measures before an instant, the earliest first.
SELECT at_ms, queue, task, counts FROM windlass.measures WHERE span = $1 AND at_ms < $2 ORDER BY at_ms, queue, task LIMIT $3

-- name: delete_measure
-- Remove the measure of one queue and task in a minute.
DELETE FROM windlass.measures WHERE span = $1 AND at_ms = $2 AND queue = $3 AND task = $4

-- name: forget_measures
-- Remove measures before one instant or after another, a bounded number.
DELETE FROM windlass.measures WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM windlass.measures WHERE span = $1 AND at_ms < $2
    UNION ALL
    SELECT ctid FROM windlass.measures WHERE span = $1 AND at_ms > $3
    LIMIT $4
))

-- name: list_first_counters
-- The number of records per queue and state, of the first queues by name.
SELECT name, part, sum(number)::bigint FROM (
    SELECT name, part, number FROM windlass.counters WHERE kind = 'jobs'
    UNION ALL
    SELECT name, part, number FROM windlass.deltas WHERE kind = 'jobs'
) AS found GROUP BY name, part HAVING sum(number) > 0 ORDER BY name LIMIT $1

-- name: save_sample
-- Write the sample of one queue in a minute.
INSERT INTO windlass.samples (span, at_ms, queue, ready, scheduled, running, dead, oldest_ready_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (span, at_ms, queue) DO UPDATE
SET ready = $4, scheduled = $5, running = $6, dead = $7, oldest_ready_ms = $8

-- name: raise_sample
-- Raise the numbers of one queue in an hour to those of a minute.
INSERT INTO windlass.samples (span, at_ms, queue, ready, scheduled, running, dead, oldest_ready_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (span, at_ms, queue) DO UPDATE
SET ready = greatest(samples.ready, $4), scheduled = greatest(samples.scheduled, $5),
    running = greatest(samples.running, $6), dead = greatest(samples.dead, $7),
    oldest_ready_ms = greatest(samples.oldest_ready_ms, $8)

-- name: count_samples
-- How many queues a minute or hour has.
SELECT count(*) FROM windlass.samples WHERE span = $1 AND at_ms = $2

-- name: has_sample
-- Whether a queue has a sample in a minute or hour.
SELECT 1 FROM windlass.samples WHERE span = $1 AND at_ms = $2 AND queue = $3

-- name: list_samples
-- Samples from an instant on, the earliest first.
SELECT at_ms, queue, ready, scheduled, running, dead, oldest_ready_ms FROM windlass.samples
WHERE span = $1 AND at_ms >= $2 ORDER BY at_ms, queue LIMIT $3

-- name: list_old_samples
-- Samples before an instant, the earliest first.
SELECT at_ms, queue, ready, scheduled, running, dead, oldest_ready_ms FROM windlass.samples
WHERE span = $1 AND at_ms < $2 ORDER BY at_ms, queue LIMIT $3

-- name: delete_sample
-- Remove the sample of one queue in a minute.
DELETE FROM windlass.samples WHERE span = $1 AND at_ms = $2 AND queue = $3

-- name: forget_samples
-- Remove samples before one instant or after another, a bounded number.
DELETE FROM windlass.samples WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM windlass.samples WHERE span = $1 AND at_ms < $2
    UNION ALL
    SELECT ctid FROM windlass.samples WHERE span = $1 AND at_ms > $3
    LIMIT $4
))

-- name: find_reporter
-- The number of the last report of a reporter, while it is remembered.
SELECT number FROM windlass.reporters WHERE reporter = $1 AND expires_ms + 0 > $2

-- name: note_report
-- Remember the number of a report.
INSERT INTO windlass.reporters (reporter, number, expires_ms) VALUES ($1, $2, $3)
ON CONFLICT (reporter) DO UPDATE SET number = $2, expires_ms = $3

-- name: forget_reporters
-- Forget reporters that were silent for long, a bounded number.
DELETE FROM windlass.reporters
WHERE ctid = ANY(ARRAY(SELECT ctid FROM windlass.reporters WHERE expires_ms <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED))

-- name: sampled_minute
-- The minute of the last sample.
SELECT sampled_ms FROM windlass.meta WHERE one = 1

-- name: note_sample
-- Note the minute of a sample.
UPDATE windlass.meta SET sampled_ms = $1

-- name: fold_deltas
-- Add up a bounded number of deltas; return the growth of enqueued jobs by queue and task, which has a limit of pairs.
WITH gone AS (
    DELETE FROM windlass.deltas WHERE ctid = ANY (ARRAY(SELECT ctid FROM windlass.deltas LIMIT $1::bigint))
    RETURNING kind, name, part, number
), folded AS (
    INSERT INTO windlass.counters (kind, name, part, number)
    SELECT kind, name, part, sum(number)::bigint FROM gone WHERE kind <> 'enqueued' GROUP BY kind, name, part
    ON CONFLICT (kind, name, part) DO UPDATE SET number = counters.number + excluded.number
)
SELECT kind, name, part, count(*), sum(number)::bigint FROM gone GROUP BY kind, name, part

-- name: forget_empty_counters
-- Forget counters that are zero.
DELETE FROM windlass.counters WHERE number = 0 AND kind = 'jobs'

-- name: try_upkeep
-- Whether this transaction may do the part of the maintenance that only one at a time does.
SELECT pg_try_advisory_xact_lock($1::bigint)
