-- The ring of ended jobs. Statements about one partition name that of slot 0, which stands for it.

-- name: close_slot
-- Let no job end in a partition, also not one whose record would be expired: its transaction may have begun long ago.
LOCK TABLE windlass.ended_0 IN SHARE MODE

-- name: count_slot
-- The numbers of records of a partition, by line.
SELECT queue, count(*) FROM windlass.ended_0 GROUP BY queue

-- name: forget_failures_of_slot
-- Remove the histories of the jobs of a partition.
DELETE FROM windlass.failures USING windlass.ended_0 WHERE failures.job = ended_0.row

-- name: forget_steps_of_slot
-- Remove the steps of the jobs of a partition.
DELETE FROM windlass.steps USING windlass.ended_0 WHERE steps.job = ended_0.row

-- name: forget_keys_of_slot
-- Forget the unique keys of the jobs of a partition.
DELETE FROM windlass.unique_keys USING windlass.ended_0
WHERE ended_0.unique_key IS NOT NULL AND unique_keys.id = ended_0.id AND unique_keys.task = ended_0.task AND unique_keys.key = ended_0.unique_key

-- name: list_slots
-- The partitions of the ring: their sizes, and whether they have records that have not expired.
SELECT 0, pg_table_size('windlass.ended_0'), EXISTS (SELECT 1 FROM windlass.ended_0 WHERE keep_until_ms > $1::bigint)
UNION ALL
SELECT 1, pg_table_size('windlass.ended_1'), EXISTS (SELECT 1 FROM windlass.ended_1 WHERE keep_until_ms > $1::bigint)
UNION ALL
SELECT 2, pg_table_size('windlass.ended_2'), EXISTS (SELECT 1 FROM windlass.ended_2 WHERE keep_until_ms > $1::bigint)
UNION ALL
SELECT 3, pg_table_size('windlass.ended_3'), EXISTS (SELECT 1 FROM windlass.ended_3 WHERE keep_until_ms > $1::bigint)
UNION ALL
SELECT 4, pg_table_size('windlass.ended_4'), EXISTS (SELECT 1 FROM windlass.ended_4 WHERE keep_until_ms > $1::bigint)
UNION ALL
SELECT 5, pg_table_size('windlass.ended_5'), EXISTS (SELECT 1 FROM windlass.ended_5 WHERE keep_until_ms > $1::bigint)
UNION ALL
SELECT 6, pg_table_size('windlass.ended_6'), EXISTS (SELECT 1 FROM windlass.ended_6 WHERE keep_until_ms > $1::bigint)
UNION ALL
SELECT 7, pg_table_size('windlass.ended_7'), EXISTS (SELECT 1 FROM windlass.ended_7 WHERE keep_until_ms > $1::bigint)

-- name: lock_slot
-- Keep readers from a partition too; the time-out for locks is short.
LOCK TABLE windlass.ended_0 IN ACCESS EXCLUSIVE MODE

-- name: prepare_emptying
-- Do not wait for long for a lock, since others wait behind it; and read a whole partition in the quickest way.
SELECT set_config('lock_timeout', '100ms', true), set_config('statement_timeout', '0', true),
       set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true)

-- name: purge_ended
-- Remove expired records of jobs that succeeded, with their histories, steps and unique keys; return their numbers by
-- line.
-- Some partitions are left out, apart from records that expired before another instant.
WITH expired AS (
    SELECT tableoid, ctid FROM windlass.ended
    WHERE keep_until_ms <= $1::bigint AND (slot <> ALL ($3::text::bigint[]) OR keep_until_ms <= $4::bigint)
    ORDER BY keep_until_ms, row LIMIT $2::bigint FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM windlass.ended USING expired
    WHERE ended.tableoid = expired.tableoid AND ended.ctid = expired.ctid
    RETURNING ended.row, ended.id, ended.task, ended.queue, ended.unique_key
), histories AS (
    DELETE FROM windlass.failures USING gone WHERE failures.job = ANY(ARRAY[gone.row])
), steps AS (
    DELETE FROM windlass.steps USING gone WHERE steps.job = ANY(ARRAY[gone.row])
), keys AS (
    DELETE FROM windlass.unique_keys USING gone
    WHERE gone.unique_key IS NOT NULL AND unique_keys.task = ANY(ARRAY[gone.task])
          AND unique_keys.key = gone.unique_key AND unique_keys.id = gone.id
)
SELECT queue, count(*) FROM gone GROUP BY queue

-- name: slot_has_records
-- Whether a partition has a record that has not expired.
SELECT 1 FROM windlass.ended_0 WHERE keep_until_ms > $1::bigint LIMIT 1

-- name: truncate_slot
-- Empty a partition.
TRUNCATE windlass.ended_0
