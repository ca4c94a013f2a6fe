"""The verbs of the SQLite engine, one module per group of verbs."""
