-- Jobs of a session whose cancellation was requested.
SELECT id FROM jobs WHERE state = 'running' AND session = ? AND cancel_requested = 1 ORDER BY id
