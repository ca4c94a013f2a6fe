"""The log of a worker: set-up, events, and how often a line is repeated."""
