"""Prefetch: how many claims to hold beyond the running jobs.

No other worker can run a claimed job. So a child prefetches nothing, unless its latest jobs were so
short that a round trip to the engine costs more than a job, and none of them was slow. Then the
child holds a fraction of a second of work, and releases claims that do not start soon. Jobs that
seem a little longer, because their thread waited for a processor, do not end the prefetch.
"""

from __future__ import annotations

from collections import deque

#: The number of latest jobs to check. With fewer jobs there is no prefetch.
SAMPLE = 50
#: The mean of their run times must be below this, in seconds.
SHORT_S = 0.005
#: A job that takes longer than this, in seconds, ends the prefetch.
SLOW_S = 0.025
#: How much work to hold, in seconds.
WORK_S = 0.075
#: The most jobs to hold.
MAX_LOOK_AHEAD = 900


class Prefetch:
    """The run times of the latest jobs of one child."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=SAMPLE)
        #: Called by every slot after every job, so it is the bare append.
        self.record = self._latest.append

    def look_ahead(self, slots: int, longest_running_s: float) -> int:
        latest = list(self._latest)
        if len(latest) < SAMPLE or max(longest_running_s, *latest) > SLOW_S:
            return 0
        mean = max(sum(latest) / len(latest), 1e-6)
        return min(MAX_LOOK_AHEAD, int(WORK_S * slots / mean)) if mean < SHORT_S else 0
