"""What a worker does about dead jobs: says what is swept away, and alerts when they pile up.

1. `sweep` writes down what dead jobs were whose time has passed, and only then has them removed. A
   worker that dies in between leaves them to the next one, so a line may be there twice and is
   never missing. Of one that cannot be read it says that; the others do not wait for it.
2. `DeadWatch` looks twice a minute at two numbers that the engine keeps: how many are dead, and how
   many have died so far. It alerts once when one of them goes beyond its threshold, and again only
   after it was well below. Of all workers that alert at this number, as they say of themselves, the
   one with the first session speaks; the next one takes over when it leaves, and then says it once
   more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from logging import getLogger
from threading import Thread
from time import monotonic
from typing import Final

from windlass.core.states import State
from windlass.dead_letter import AlertHook, DeadAlert, Unreadable, log_summary, read_each
from windlass.engine.contract import Engine, SessionRecord, Tended
from windlass.worker.ipc.session_info import Introduction

log = getLogger("windlass.dead_letters")

#: How often to look, in seconds.
LOOK_S: Final = 30.0
#: Growth is that of so many seconds.
WINDOW_S: Final = 300.0
#: A worker that is not the one to speak asks again after so many seconds whether it is now.
TURN_S: Final = 300.0
#: An alert is given again after the number was at most this share of its threshold.
CALM: Final = 0.8


def sweep(engine: Engine, ids: Sequence[str]) -> Tended:
    """Write down, then remove, dead jobs that were kept long enough: those that one call of `tend`
    gave, which are read at once because that call bounds their bytes."""
    for record in read_each(engine, ids):
        if isinstance(record, Unreadable):
            log.error(
                "removing job %s, dead for longer than dead_ttl, of which nothing can be read: %s",
                record.id,
                record.why,
            )
        elif record is not None and record.state is State.DEAD:
            job_id, task, reason, call = log_summary(record)
            log.warning(
                "removing job %s of task %s, dead (%s) for longer than dead_ttl; its call: %s",
                job_id,
                task,
                reason,
                call,
            )
    return engine.tend(ids)


class DeadWatch:
    """For one worker; `sessions` are its own, `on_alert` is called in the thread that looks."""

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
        self._seen: deque[tuple[float, int]] = deque()  # when, and how many had died by then
        self._told: set[str] = set()
        self._asks_at: dict[str, float] = {}  # kind -> when to ask whose turn it is

    def look(self) -> float:
        """The seconds until the next look."""
        if not any(self._thresholds.values()):
            return float("inf")
        stats = self._engine.stats()
        dead = sum(states.get(State.DEAD, 0) for states in stats.queues.values())
        grown = self._note(stats.totals.get("dead", 0))
        for kind, number in (("depth", dead), ("growth", grown)):
            if self._is_news(kind, number):
                threshold = self._thresholds[kind]
                self._tell(DeadAlert(kind=kind, dead=dead, grown=grown, threshold=threshold))
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
            self._told.discard(kind)
        is_over = 0 < threshold < number
        return is_over and kind not in self._told and self._is_its_turn(kind, number)

    def _tell(self, alert: DeadAlert) -> None:
        self._told.add(alert.kind)
        if alert.kind == "depth":
            log.warning(
                "there are %d dead jobs, more than %d: see windlass dead list --group",
                alert.dead,
                alert.threshold,
            )
        else:
            log.warning(
                "%d jobs died within 5 minutes, more than %d: see windlass dead list --group",
                alert.grown,
                alert.threshold,
            )
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
    """Nobody else's matters: whoever does not look, or bears more, would keep it to itself."""
    known = Introduction.unpack(session.info)
    return known.dead_alert if kind == "depth" else known.dead_alert_growth


def call_hooks(hooks: Sequence[AlertHook], alert: DeadAlert) -> None:
    """In a thread of its own: it is user code, which may take long or fail."""

    def run() -> None:
        for hook in hooks:
            try:
                hook(alert)
            except Exception:
                log.exception("the alert on dead jobs could not be passed on")

    if hooks:
        Thread(target=run, name="dead-alert", daemon=True).start()
