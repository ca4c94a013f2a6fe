-- Whether a session was declared dead, and the latest nonce under which it leased jobs.
SELECT gone, last_nonce FROM sessions WHERE session = ?
