-- Whether a lease ran out, or the jobs of a dead session were not all taken back yet.
SELECT EXISTS (SELECT 1 FROM sessions WHERE gone = 0 AND expires_ms <= ?1)
    OR EXISTS (SELECT 1 FROM sessions WHERE gone = 1)
