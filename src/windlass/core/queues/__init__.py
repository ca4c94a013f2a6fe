"""Queues: their settings, the plan of a worker that serves them, labels of jobs, and their load."""
