"""A past for tests of the history: minutes that went by, with measures and samples."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from windlass import Windlass
from windlass.core.history import MINUTE_MS, OUTCOMES, Tally
from windlass.engine.clock import read_clock
from windlass.engine.contract import Measure


class Past:
    """Moves the clock of the engine from minute to minute. Minute 0 is the first one."""

    def __init__(self, app: Windlass) -> None:
        self.app = app
        now_ms = read_clock(app.engine)
        self.first_ms = now_ms - now_ms % MINUTE_MS + MINUTE_MS
        self._reports = count(1)

    def go_to(self, minute: float) -> None:
        """Move the clock to this minute, a second after its begin if it is a whole one."""
        engine = self.app.engine
        wanted_ms = self.first_ms + int(minute * MINUTE_MS) + (1000 if minute == int(minute) else 0)
        engine.clock_offset_ms += wanted_ms - read_clock(engine)

    def tend(self) -> None:
        """Let the engine count enqueued jobs and take samples."""
        while self.app.engine.tend().more:
            pass

    def record(
        self,
        queue: str = "mail",
        task: str = "shop.mail.send",
        *,
        wait_s: float = 0.1,
        run_s: float = 2.0,
        **outcomes: int,
    ) -> None:
        """Report runs, by their outcomes."""
        self.record_all([measure(queue, task, wait_s=wait_s, run_s=run_s, **outcomes)])

    def record_all(self, measures: Iterable[Measure]) -> None:
        self.app.engine.record("reporter", next(self._reports), list(measures))


def measure(
    queue: str, task: str, *, wait_s: float = 0.1, run_s: float = 2.0, **outcomes: int
) -> Measure:
    tally = Tally()
    for name, number in outcomes.items():
        for _ in range(number):
            tally.add(OUTCOMES.index(name), wait_s, run_s)
    return Measure(queue=queue, task=task, counts=tuple(tally.counts))
