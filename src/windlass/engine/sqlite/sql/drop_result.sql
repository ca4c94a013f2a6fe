-- Drop a result whose time has passed; the record is kept a while longer.
UPDATE jobs SET result = NULL, keep_until_ms = ?2 WHERE row = ?1
