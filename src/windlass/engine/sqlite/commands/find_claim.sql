-- What a success needs to know of a job.
SELECT row, queue, token, last_token FROM jobs WHERE id = ?
