-- Forget all but the newest entries of a history.
DELETE FROM failures
WHERE job = ?1 AND number <= (SELECT max(number) FROM failures WHERE job = ?1) - ?2
