-- Write the bookkeeping back.
UPDATE meta SET sequence = ?, last_seen_ms = ?, reap_after_ms = ?, longest_lease_ms = ?, longest_until_ms = ?, next_lease_ms = ?
