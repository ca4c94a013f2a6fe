-- Whether a session was declared dead, and the latest nonce under which it got something.
SELECT gone, last_nonce FROM sessions WHERE session = ?
