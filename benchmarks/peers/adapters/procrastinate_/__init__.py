"""The adapter of Procrastinate: `tasks` for its workers, `producer` for its enqueue calls."""
