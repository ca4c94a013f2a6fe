"""The clock of an engine, for callers that compare stored instants with now."""

from __future__ import annotations

from windlass.engine.contract import Engine


def read_clock(engine: Engine) -> int:
    """Return the engine's time, in milliseconds since 1970. Takes one call of the engine."""
    return engine.due_schedules(limit=1).now_ms
