-- A claim under this nonce that is still on its way must find nothing.
UPDATE sessions SET last_nonce = ?2 WHERE session = ?1 AND last_nonce < ?2
