"""The adapter of taskiq: `tasks` for its workers, `producer` for its enqueue calls."""
