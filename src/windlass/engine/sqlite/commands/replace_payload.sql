-- The envelope of a call that takes the place of another.
UPDATE payloads SET body = ?2 WHERE job = ?1
