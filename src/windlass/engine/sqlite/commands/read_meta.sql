-- The one row of bookkeeping.
SELECT sequence, last_seen_ms, reap_after_ms, queues FROM meta
