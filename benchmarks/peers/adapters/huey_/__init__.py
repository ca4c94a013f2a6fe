"""The adapter of huey: `tasks` for its workers, `producer` for its enqueue calls."""
