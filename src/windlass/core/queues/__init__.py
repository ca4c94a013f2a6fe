"""Queues: their settings, the plan of a worker that serves them, and the labels of jobs."""
