-- Keep how far a running job is, if the token is the current one.
UPDATE jobs SET progress = ?3 WHERE id = ?1 AND token = ?2 RETURNING row
