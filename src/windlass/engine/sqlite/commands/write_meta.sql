-- Write the bookkeeping back.
UPDATE meta SET sequence = ?, last_seen_ms = ?, reap_after_ms = ?
