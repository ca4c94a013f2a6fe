-- After the clock went back: no lease may reach further than a whole one.
UPDATE sessions SET expires_ms = ?1 WHERE gone = 0 AND expires_ms > ?1
