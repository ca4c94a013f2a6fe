"""Schedules: cron expressions, time zones, due occurrences and the stored state."""
