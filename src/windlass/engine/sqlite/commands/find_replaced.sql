-- The job that took over the call of this put.
SELECT id FROM jobs WHERE replaced_by = ?
