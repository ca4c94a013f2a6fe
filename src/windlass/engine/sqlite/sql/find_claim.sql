-- How the last claim of a job was ended by its own holder.
SELECT last_token, last_event FROM jobs WHERE id = ?
