"""Alerts: read what the rules of an app watch, decide in one process at a time, and deliver."""
