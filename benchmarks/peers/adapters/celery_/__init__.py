"""The adapter of celery: `tasks` for its workers, `producer` for its enqueue calls."""
