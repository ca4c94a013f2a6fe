"""Measure a server's clock and the way to it, for `windlass doctor`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Final

from windlass.engine.contract import Finding, Grade

#: Largest harmless clock difference. The server's clock decides when jobs are due.
MOST_SKEW_MS: Final = 1_000
#: Slow above this: each turn of a worker and each enqueue costs a round trip.
MOST_ROUND_TRIP_MS: Final = 5.0
_ROUND_TRIPS: Final = 7


def examine_times(ask_ms: Callable[[], float]) -> Iterator[Finding]:
    """Compare clocks on the fastest of several round trips, to within half of its time. A call
    returns the time of the server."""
    trips = []
    for _ in range(_ROUND_TRIPS):
        before_ns = time.time_ns()
        there_ms = ask_ms()
        after_ns = time.time_ns()
        here_ms = (before_ns + after_ns) / 2e6
        trips.append(((after_ns - before_ns) / 1e6, there_ms - here_ms))
    yield _examine_clock(min(trips)[1])
    yield examine_round_trip(statistics.median(trip_ms for trip_ms, _ in trips))


def _examine_clock(ahead_ms: float) -> Finding:
    if abs(ahead_ms) <= MOST_SKEW_MS:
        return Finding(
            Grade.OK, "clock", f"the server's is within {max(1, round(abs(ahead_ms)))} ms of ours"
        )
    return Finding(
        Grade.ADVICE,
        "clock",
        f"the server's is {abs(ahead_ms) / 1000:.1f} s {'ahead of' if ahead_ms > 0 else 'behind'} "
        "ours. Jobs are due by the server's: synchronize both with a time service",
    )


def examine_round_trip(milliseconds: float) -> Finding:
    described = f"{milliseconds:.2f} ms"
    if milliseconds <= MOST_ROUND_TRIP_MS:
        return Finding(Grade.OK, "round trip", described)
    return Finding(
        Grade.ADVICE,
        "round trip",
        f"{described}: every enqueue and every turn of a worker waits for one. Move the server "
        "closer, or enqueue many at a time",
    )
