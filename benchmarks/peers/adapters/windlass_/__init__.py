"""The adapter of windlass: `tasks` for its workers, `producer` for its enqueue calls."""
