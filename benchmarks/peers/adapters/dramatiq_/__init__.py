"""The adapter of dramatiq: `tasks` for its workers, `producer` for its enqueue calls."""
