-- Let a session live until an instant; one that was declared dead stays dead.
UPDATE sessions SET expires_ms = ?2 WHERE session = ?1 AND gone = 0
