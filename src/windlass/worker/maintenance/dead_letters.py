"""Log expired dead letters, and alert when dead letters pile up.

1. `sweep` logs expired dead letters, and only then removes them. If a worker dies in between, the
   next worker repeats both: a line may appear twice and is never missing. A dead letter that cannot
   be read is logged as unreadable, and does not block the others.
2. `DeadWatch` checks two counters of the engine twice a minute: the number of dead jobs, and the
   total of jobs that died. It alerts once when a number exceeds its threshold, and again only
   after the number was well below. Of all workers with an exceeded threshold, only the worker with
   the first session alerts. When that worker leaves, the next worker takes over and alerts again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from logging import getLogger
from threading import Thread
from time import monotonic
from typing import Final

from windlass.core.introduction import Introduction
from windlass.core.states import State
from windlass.dead_letter import AlertHook, DeadAlert, Unreadable, log_summary, read_each
from windlass.engine.contract import Engine, SessionRecord, Tended
from windlass.worker.logs.events import LogEvent

log = getLogger("windlass.dead_letters")

#: How often to check, in seconds.
LOOK_S: Final = 30.0
#: Growth is counted over this many seconds.
WINDOW_S: Final = 300.0
#: How often a worker checks whether it has become the worker that alerts, in seconds.
TURN_S: Final = 300.0
#: A new alert needs a number of at most this share of the threshold in between.
CALM: Final = 0.8


def sweep(engine: Engine, ids: Sequence[str]) -> Tended:
    """Log expired dead letters, then remove them. The ids come from one call of `tend`, which
    limits their total size: so all records are read at once."""
    for record in read_each(engine, ids):
        if isinstance(record, Unreadable):
            log.error(LogEvent.UNREADABLE_JOB_REMOVED, record.id, record.why)
        elif record is not None and record.state is State.DEAD:
            job_id, task, reason, call = log_summary(record)
            log.warning(LogEvent.DEAD_JOB_REMOVED, job_id, task, reason, call)
    return engine.tend(ids)


class DeadWatch:
    """Alert about dead letters. `sessions` returns this worker's sessions. `on_alert` runs in the
    maintenance thread."""

    def __init__(
        self,
        engine: Engine,
        depth: int,
        growth: int,
        sessions: Callable[[], Collection[str]],
        on_alert: Callable[[DeadAlert], None],
    ) -> None:
        self._engine = engine
        self._thresholds = {"depth": depth, "growth": growth}
        self._sessions = sessions
        self._on_alert = on_alert
        self._seen: deque[tuple[float, int]] = deque()  # time, and total of dead jobs
        self._alerted: set[str] = set()
        self._asks_at: dict[str, float] = {}  # kind -> when to check which worker alerts

    def look(self) -> float:
        """Check the counters; return the seconds until the next check."""
        if not any(self._thresholds.values()):
            return float("inf")
        stats = self._engine.stats()
        dead = sum(states.get(State.DEAD, 0) for states in stats.queues.values())
        grown = self._note(stats.totals.get("dead", 0))
        for kind, number in (("depth", dead), ("growth", grown)):
            if self._is_news(kind, number):
                threshold = self._thresholds[kind]
                self._alert(DeadAlert(kind=kind, dead=dead, grown=grown, threshold=threshold))
        return LOOK_S

    def _note(self, died: int) -> int:
        now = monotonic()
        self._seen.append((now, died))
        while self._seen[0][0] < now - WINDOW_S:
            self._seen.popleft()
        return max(0, died - self._seen[0][1])

    def _is_news(self, kind: str, number: int) -> bool:
        threshold = self._thresholds[kind]
        if number <= threshold * CALM:
            self._alerted.discard(kind)
        is_over = 0 < threshold < number
        return is_over and kind not in self._alerted and self._is_its_turn(kind, number)

    def _alert(self, alert: DeadAlert) -> None:
        self._alerted.add(alert.kind)
        if alert.kind == "depth":
            log.warning(LogEvent.DEAD_JOBS_MANY, alert.dead, alert.threshold)
        else:
            log.warning(LogEvent.DEAD_JOBS_GROWING, alert.grown, alert.threshold)
        self._on_alert(alert)

    def _is_its_turn(self, kind: str, number: int) -> bool:
        if monotonic() < self._asks_at.get(kind, 0.0):
            return False
        alerting = [
            one.session
            for one in self._engine.sessions()
            if one.expires_in_ms >= 0 and 0 < _threshold_of(one, kind) < number
        ]
        if alerting and min(alerting) in self._sessions():
            return True
        self._asks_at[kind] = monotonic() + (TURN_S if alerting else 0.0)
        return False


def _threshold_of(session: SessionRecord, kind: str) -> int:
    """Return the threshold of the worker of a session: a worker alerts only above its own."""
    known = Introduction.unpack(session.info)
    return known.dead_alert if kind == "depth" else known.dead_alert_growth


def call_hooks(hooks: Sequence[AlertHook], alert: DeadAlert) -> None:
    """Call alert hooks in a separate thread: user code may take long or fail."""

    def run() -> None:
        for hook in hooks:
            try:
                hook(alert)
            except Exception:
                log.exception(LogEvent.DEAD_ALERT_FAILED)

    if hooks:
        Thread(target=run, name="dead-alert", daemon=True).start()
