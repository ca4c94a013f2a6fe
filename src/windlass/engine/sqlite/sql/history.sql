-- The history of queues and tasks, and the counters of enqueued jobs.

-- name: add_enqueued
-- Count enqueued jobs of a queue and task that are counted already.
UPDATE enqueued SET number = number + ?3 WHERE queue = ?1 AND task = ?2

-- name: begin_enqueued
-- Count the first jobs of a queue and task.
INSERT INTO enqueued (queue, task, number, grown_ms) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (queue, task) DO UPDATE SET number = number + ?3

-- name: count_pairs
-- How many pairs of queue and task are counted, without the pair of all others.
SELECT count(*) FROM enqueued WHERE (queue, task) <> (?1, ?1)

-- name: list_enqueued
-- How many jobs were enqueued, by queue and task.
SELECT queue, task, number FROM enqueued

-- name: list_growth
-- How many enqueued jobs the history does not have yet, by queue and task.
SELECT queue, task, number - sampled FROM enqueued WHERE number > sampled

-- name: note_growth
-- Note that the history has all enqueued jobs.
UPDATE enqueued SET sampled = number, grown_ms = ?1 WHERE number > sampled

-- name: list_unused_pairs
-- Pairs of queue and task for which no job was enqueued for long.
SELECT queue, task, number FROM enqueued WHERE grown_ms <= ?

-- name: forget_pair
-- Forget the counter of a queue and task.
DELETE FROM enqueued WHERE queue = ? AND task = ?

-- name: find_measures
-- The counts of queues and tasks in a minute or hour: arrays of queues and of their tasks.
SELECT queue, task, counts FROM measures
WHERE span = ?1 AND at_ms = ?2 AND (queue, task) IN (SELECT value, ?4 ->> key FROM json_each(?3) AS given)

-- name: count_measures
-- How many queues and tasks a minute or hour has, without the pair of all others.
SELECT count(*) FROM measures WHERE span = ?1 AND at_ms = ?2 AND (queue, task) <> (?3, ?3)

-- name: save_measure
-- Write the counts of one queue and task in a minute or hour.
INSERT INTO measures (span, at_ms, queue, task, counts) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (span, at_ms, queue, task) DO UPDATE SET counts = ?5

-- name: list_measures
-- Measures from an instant on, the earliest first.
SELECT at_ms, queue, task, counts FROM measures WHERE span = ? AND at_ms >= ? ORDER BY at_ms, queue, task LIMIT ?

-- name: list_old_measures
-- Measures before an instant, the earliest first.
SELECT at_ms, queue, task, counts FROM measures WHERE span = ? AND at_ms < ? ORDER BY at_ms, queue, task LIMIT ?

-- name: delete_measure
-- Remove the measure of one queue and task in a minute.
DELETE FROM measures WHERE span = ? AND at_ms = ? AND queue = ? AND task = ?

-- name: forget_measures
-- Remove measures before one instant or after another, a bounded number.
DELETE FROM measures WHERE (span, at_ms, queue, task) IN (
    SELECT span, at_ms, queue, task FROM (
        SELECT span, at_ms, queue, task FROM measures WHERE span = ?1 AND at_ms < ?2
        UNION ALL
        SELECT span, at_ms, queue, task FROM measures WHERE span = ?1 AND at_ms > ?3
    ) LIMIT ?4
)

-- name: list_first_counters
-- The number of records per queue and state, of the first queues by name.
SELECT queue, state, number FROM counters WHERE number > 0 ORDER BY queue LIMIT ?

-- name: save_sample
-- Write the sample of one queue in a minute.
INSERT INTO samples (span, at_ms, queue, ready, scheduled, running, dead, oldest_ready_ms)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (span, at_ms, queue) DO UPDATE
SET ready = ?4, scheduled = ?5, running = ?6, dead = ?7, oldest_ready_ms = ?8

-- name: raise_sample
-- Raise the numbers of one queue in an hour to those of a minute.
INSERT INTO samples (span, at_ms, queue, ready, scheduled, running, dead, oldest_ready_ms)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (span, at_ms, queue) DO UPDATE
SET ready = max(ready, ?4), scheduled = max(scheduled, ?5), running = max(running, ?6), dead = max(dead, ?7),
    oldest_ready_ms = max(oldest_ready_ms, ?8)

-- name: count_samples
-- How many queues a minute or hour has.
SELECT count(*) FROM samples WHERE span = ? AND at_ms = ?

-- name: has_sample
-- Whether a queue has a sample in a minute or hour.
SELECT 1 FROM samples WHERE span = ? AND at_ms = ? AND queue = ?

-- name: list_samples
-- Samples from an instant on, the earliest first.
SELECT at_ms, queue, ready, scheduled, running, dead, oldest_ready_ms FROM samples
WHERE span = ? AND at_ms >= ? ORDER BY at_ms, queue LIMIT ?

-- name: list_old_samples
-- Samples before an instant, the earliest first.
SELECT at_ms, queue, ready, scheduled, running, dead, oldest_ready_ms FROM samples
WHERE span = ? AND at_ms < ? ORDER BY at_ms, queue LIMIT ?

-- name: delete_sample
-- Remove the sample of one queue in a minute.
DELETE FROM samples WHERE span = ? AND at_ms = ? AND queue = ?

-- name: forget_samples
-- Remove samples before one instant or after another, a bounded number.
DELETE FROM samples WHERE (span, at_ms, queue) IN (
    SELECT span, at_ms, queue FROM (
        SELECT span, at_ms, queue FROM samples WHERE span = ?1 AND at_ms < ?2
        UNION ALL
        SELECT span, at_ms, queue FROM samples WHERE span = ?1 AND at_ms > ?3
    ) LIMIT ?4
)

-- name: find_reporter
-- The number of the last report of a reporter, while it is remembered.
SELECT number FROM reporters WHERE reporter = ? AND expires_ms > ?

-- name: note_report
-- Remember the number of a report.
INSERT INTO reporters (reporter, number, expires_ms) VALUES (?1, ?2, ?3)
ON CONFLICT (reporter) DO UPDATE SET number = ?2, expires_ms = ?3

-- name: forget_reporters
-- Forget reporters that were silent for long, a bounded number.
DELETE FROM reporters WHERE reporter IN (SELECT reporter FROM reporters WHERE expires_ms <= ? LIMIT ?)

-- name: sampled_minute
-- The minute of the last sample.
SELECT sampled_ms FROM meta

-- name: note_sample
-- Note the minute of a sample.
UPDATE meta SET sampled_ms = ?
