"""Back-off between retries."""

from __future__ import annotations

from random import uniform


class Backoff:
    """Exponential back-off with a cap and random jitter of up to a half, so that callers that
    failed together do not retry together."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._failures = 0

    def next_s(self) -> float:
        longest = min(self._most_s, self._first_s * (1 << min(self._failures, 30)))
        self._failures += 1
        return longest * uniform(0.5, 1)

    def reset(self) -> None:
        self._failures = 0
