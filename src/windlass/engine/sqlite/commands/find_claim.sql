-- What a success needs to know of a job.
SELECT row, queue, token, last_token, last_event FROM jobs WHERE id = ?
