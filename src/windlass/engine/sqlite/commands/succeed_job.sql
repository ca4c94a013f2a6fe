-- End a claim with success; its token was compared before, in the same transaction.
UPDATE jobs
SET state = 'succeeded', reason = NULL, suspect = 0, cancel_requested = 0, token = NULL,
    last_token = ?2, last_event = 'succeed', finished_ms = ?3, keep_until_ms = ?4, result_until_ms = ?5, result = ?6
WHERE row = ?1
