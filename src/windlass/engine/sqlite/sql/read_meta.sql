-- The one row of bookkeeping.
SELECT sequence, last_seen_ms, reap_after_ms, longest_lease_ms, longest_until_ms, next_lease_ms, queues FROM meta
