-- Whether a job of one of these tasks, given as an array, is held because some worker did not know it.
SELECT EXISTS (
    SELECT 1 FROM jobs WHERE hold = 'unroutable' AND task IN (SELECT value FROM json_each(?1)))
