"""Copies of all jobs, schedules, queue settings and keys from one engine to another."""
