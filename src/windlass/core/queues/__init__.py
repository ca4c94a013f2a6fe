"""Queues: which ones a worker serves, their settings, and the labels that jobs require."""
