-- Remove one job; its payload and history go with it.
DELETE FROM jobs WHERE row = ?
