-- Store the progress of a running job, if the token is current.
UPDATE jobs SET progress = ?3 WHERE id = ?1 AND token = ?2 RETURNING row
