"""Maintenance that every worker does for all workers: schedules, dead letters, lost jobs."""
