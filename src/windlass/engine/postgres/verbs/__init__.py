"""The verbs of the PostgreSQL engine that differ from those of other SQL engines."""
