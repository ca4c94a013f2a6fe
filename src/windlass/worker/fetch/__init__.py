"""Fetching: claim jobs from the engine, and report what became of them."""
