"""The adapter of pgqueuer: `tasks` for its workers, `producer` for its enqueue calls."""
