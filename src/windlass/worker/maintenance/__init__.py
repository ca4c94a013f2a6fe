"""Maintenance that any worker does for all: schedules, dead letters, lost jobs."""
