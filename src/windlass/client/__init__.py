"""From a call to a stored job, and from a job to its result: what producers use."""
