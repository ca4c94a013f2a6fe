-- Wake-ups. These tables and their instants are only hints, and follow the clock of the server.

-- name: hold_number
-- Hold the lock of a number for as long as this connection lives. A process that gets the lock later knows that the
-- holder is gone.
SELECT pg_try_advisory_lock($1::bigint)

-- name: pulse
-- Ask for a reply, to learn whether the server is there.
SELECT 1

-- name: show_waiter
-- Show that a process waits for jobs, with its plans, for some time.
INSERT INTO windlass.waiters (number, until_ms, digest, plans)
VALUES ($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $2::bigint, $3::bigint, $4)
ON CONFLICT (number) DO UPDATE SET until_ms = excluded.until_ms, digest = excluded.digest, plans = excluded.plans

-- name: hide_waiter
-- Do not show a process any more.
DELETE FROM windlass.waiters WHERE number = $1::bigint

-- name: tell_waiters
-- Send payloads to processes by their numbers, unless they do not wait any more. Returns all processes that are shown,
-- with the digest of their plans, and whether they still wait.
WITH listed AS MATERIALIZED (
    SELECT number, digest, until_ms > (extract(epoch FROM clock_timestamp()) * 1000)::bigint
           AND NOT pg_try_advisory_xact_lock_shared(number) AS is_waiting
    FROM windlass.waiters
), told AS MATERIALIZED (
    SELECT pg_notify('windlass_' || number, payload)
    FROM unnest($1::bigint[], $2::text[]) AS sent (number, payload) JOIN listed USING (number) WHERE is_waiting
)
SELECT listed.*, (SELECT count(*) FROM told) FROM listed

-- name: read_plans
-- The plans with these digests.
SELECT DISTINCT ON (digest) digest, plans FROM windlass.waiters WHERE digest = ANY($1::bigint[])

-- name: forget_waiters
-- Remove processes that do not wait any more.
DELETE FROM windlass.waiters WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM windlass.waiters
    WHERE until_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint OR pg_try_advisory_xact_lock_shared(number)
    LIMIT $1::bigint FOR UPDATE SKIP LOCKED
))

-- name: watch
-- Remember that a process waits for the end of these jobs, for some time. A job that has ended needs no watch.
INSERT INTO windlass.watches (id, watcher, until_ms)
SELECT id, $2::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $3::bigint
FROM windlass.jobs WHERE id = ANY($1::text[]) AND state NOT IN ('dead', 'cancelled')
ON CONFLICT (id, watcher) DO UPDATE SET until_ms = excluded.until_ms

-- name: announce_ends
-- Tell the processes that wait for one of these jobs, once each. Returns whether there were any watches at all.
WITH over AS (
    DELETE FROM windlass.watches WHERE id = ANY($1::text[]) RETURNING id, watcher
), told AS (
    SELECT pg_notify('windlass_' || watcher, string_agg(id, E'\n')) FROM over GROUP BY watcher
)
SELECT EXISTS (SELECT 1 FROM windlass.watches), (SELECT count(*) FROM told)

-- name: forget_watches
-- Forget callers that do not wait any more, a bounded number.
DELETE FROM windlass.watches WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM windlass.watches
    WHERE until_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint LIMIT $1::bigint FOR UPDATE SKIP LOCKED
))
