"""How far to look ahead: how many claims to hold beyond those that run.

A claim in hand that cannot start is a job that nobody else can take. So none is held, unless the
jobs of late were so short that a round trip to the engine costs more than running one, and not one
of them was slow. Then a fraction of a second of work is held, and whatever is not started soon is
handed back. A job now and then that seems longer than it is, because its thread had to wait for a
processor, does not count against the others.
"""

from __future__ import annotations

from collections import deque

#: So many of the latest jobs are looked at, and without that many there is no look-ahead.
SAMPLE = 50
#: Their mean has to be shorter than this, in seconds.
SHORT_S = 0.005
#: One that took longer than this, in seconds, or runs for longer, ends the look-ahead.
SLOW_S = 0.025
#: This much work is held, in seconds.
WORK_S = 0.075
#: But never more jobs than this.
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
