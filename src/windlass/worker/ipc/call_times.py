"""How long calls of the engine took, in memory that supervisor and child may share.

The memory has a histogram for each verb and outcome: the counts of its buckets, and the sum of the
times in microseconds. The supervisor reads it at any time, also after the death of the child.
"""

from __future__ import annotations

from bisect import bisect_left
from threading import Lock
from typing import Final

from windlass.core.history import BOUNDS_S, BUCKETS
from windlass.engine.instrumented import TIMED_VERBS

OUTCOMES: Final = ("error", "ok")
#: The numbers of one histogram.
_WIDTH: Final = BUCKETS + 1
_NUMBERS: Final = len(TIMED_VERBS) * len(OUTCOMES) * _WIDTH
#: The bytes of all histograms.
CALL_BYTES: Final = _NUMBERS * 8

#: By verb and outcome: the counts of the buckets, and the sum in microseconds.
Times = dict[tuple[str, str], tuple[int, ...]]


class CallTimes:
    """Histograms of the calls of one process."""

    def __init__(self, memory: memoryview | None = None) -> None:
        self._numbers = (memory or memoryview(bytearray(CALL_BYTES))).cast("Q")
        self._lock = Lock()  # several threads of a process make calls

    def observe(self, verb: int, is_ok: bool, seconds: float) -> None:
        """Count a call. `verb` is a position in `TIMED_VERBS`."""
        first = (verb * len(OUTCOMES) + is_ok) * _WIDTH
        with self._lock:
            self._numbers[first + bisect_left(BOUNDS_S, seconds)] += 1
            self._numbers[first + BUCKETS] += int(seconds * 1_000_000)

    def read(self) -> Times:
        """Return all histograms that are not empty."""
        numbers = self._numbers.tolist()
        names = ((verb, outcome) for verb in TIMED_VERBS for outcome in OUTCOMES)
        rows = (tuple(numbers[at : at + _WIDTH]) for at in range(0, _NUMBERS, _WIDTH))
        return {name: row for name, row in zip(names, rows, strict=True) if any(row)}


def add_times(total: Times, more: Times) -> None:
    """Add histograms to a total."""
    for name, own in more.items():
        known = total.get(name, (0,) * _WIDTH)
        total[name] = tuple(a + b for a, b in zip(known, own, strict=True))
