"""Calls of tasks outside of Python code: read from JSON, shown, described, edited and redacted."""
