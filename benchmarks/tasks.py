"""The tasks that the benchmarks run. The url comes from the environment."""

from __future__ import annotations

import time

from windlass import Windlass

app = Windlass()


@app.task
def nothing(number: int) -> None:
    """A no-op in a thread."""


@app.task
async def nothing_async(number: int) -> None:
    """A no-op on the event loop."""


@app.task
def started_at() -> int:
    """When user code began, in nanoseconds of the wall clock."""
    return time.time_ns()
