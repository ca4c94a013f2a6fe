"""Fetch jobs: claim them from the engine, and report their outcomes."""
