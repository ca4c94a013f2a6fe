-- When a session runs out, and whether it was declared dead.
SELECT expires_ms, gone FROM sessions WHERE session = ?
