"""The rules of alerts, and what an alert says.

1. `Alert` is a rule: a number to watch, and its threshold. Each queue, task or schedule that a rule
   is about is a subject with a state of its own.
2. `AlertEvent` is what an alert says when it fires or clears.
3. `read_alerts` checks the rules of an app.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, Self, TypeAlias

import msgspec

from windlass.core.durations import Duration, describe_ms, to_ms
from windlass.core.history import BOUNDS_S
from windlass.core.ids import blake2b
from windlass.core.quantities import count

#: An alert clears at this share of its threshold, unless its rule says otherwise.
CALM: Final = 0.8
#: How long a number must be low before an alert clears, in milliseconds, at most.
MAX_CALM_MS: Final = 60_000
#: An app has at most this many rules of its own.
MAX_ALERTS: Final = 50
#: Failure rates and run times are of this time, in milliseconds.
WINDOW_MS: Final = 300_000

EventState: TypeAlias = Literal["firing", "cleared", "test"]


class AlertKind(StrEnum):
    """What a rule watches."""

    DEAD_LETTERS = "dead_letters"
    DEAD_GROWTH = "dead_growth"
    OLDEST_AGE = "oldest_age"
    NO_WORKER = "no_worker"
    FAILURE_RATE = "failure_rate"
    RUN_TIME = "run_time"
    OVERDUE_SCHEDULE = "overdue_schedule"
    ENGINE_MEMORY = "engine_memory"


#: The kinds by the unit of their numbers; the others are numbers of jobs.
_SECONDS: Final = (AlertKind.OLDEST_AGE, AlertKind.RUN_TIME, AlertKind.OVERDUE_SCHEDULE)
_SHARES: Final = (AlertKind.FAILURE_RATE, AlertKind.ENGINE_MEMORY)

#: kind -> the text of an event; the cleared one says the same of a low number.
_TEXTS: Final = {
    AlertKind.DEAD_LETTERS: "{dead}{of_queue}, threshold {threshold}: "
    "see windlass dead list --group",
    AlertKind.DEAD_GROWTH: "{died} died within 5 minutes, threshold {threshold}: "
    "see windlass dead list --group",
    AlertKind.OLDEST_AGE: "the next job of queue {subject} has been ready for {value}, "
    "threshold {threshold}",
    AlertKind.NO_WORKER: "{ready} without a worker in queue {subject}: see windlass workers",
    AlertKind.FAILURE_RATE: "{value} of the runs of task {subject} failed within 5 minutes, "
    "threshold {threshold}",
    AlertKind.RUN_TIME: "the run time of task {subject} is {value} (p99 of 5 minutes), "
    "threshold {threshold}",
    AlertKind.OVERDUE_SCHEDULE: "schedule {subject} is overdue by {value}, threshold {threshold}: "
    "see windlass schedule list",
    AlertKind.ENGINE_MEMORY: "{value} of the engine's memory is used, threshold {threshold}: "
    "see windlass doctor",
}


class Alert(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule for `Windlass(alerts=[...])`, made by one of the class methods.

    An alert fires when its number is above the threshold, at every look for the time `for_`. It
    clears when the number is at or below `clear_at`, four fifths of the threshold by default, for
    the same time, at most a minute."""

    kind: AlertKind
    over: float  # jobs, seconds or a share
    clear_at: float
    subject: str = ""  # the name of a queue, task or schedule; each one when empty
    for_ms: int = 0
    min_runs: int = 0  # fewer runs do not make an alert fire

    @classmethod
    def dead_letters(
        cls, over: int, *, queue: str = "", for_: Duration = 0, clear_at: int | None = None
    ) -> Self:
        """More dead jobs than `over`, in all queues or in one."""
        number = _whole("over", over)
        return cls._make(AlertKind.DEAD_LETTERS, number, clear_at, _name("queue", queue), for_)

    @classmethod
    def dead_growth(cls, over: int, *, for_: Duration = 0, clear_at: int | None = None) -> Self:
        """More jobs than `over` died within five minutes."""
        return cls._make(AlertKind.DEAD_GROWTH, _whole("over", over), clear_at, "", for_)

    @classmethod
    def oldest_age(
        cls,
        over: Duration,
        *,
        queue: str = "",
        for_: Duration = 0,
        clear_at: Duration | None = None,
    ) -> Self:
        """The next job of a queue has been ready for longer than `over`."""
        calm = None if clear_at is None else _seconds("clear_at", clear_at)
        seconds = _seconds("over", over)
        return cls._make(AlertKind.OLDEST_AGE, seconds, calm, _name("queue", queue), for_)

    @classmethod
    def no_worker(cls, *, queue: str = "", for_: Duration = "5m") -> Self:
        """A queue has ready jobs, and no live worker serves it."""
        return cls._make(AlertKind.NO_WORKER, 0, 0, _name("queue", queue), for_)

    @classmethod
    def failure_rate(
        cls,
        over: float,
        *,
        task: str = "",
        for_: Duration = "1m",
        clear_at: float | None = None,
        min_runs: int = 20,
    ) -> Self:
        """A larger share than `over` of the attempts of a task failed within five minutes, out of
        at least `min_runs` attempts."""
        share, name = _share("over", over), _name("task", task)
        runs = _whole("min_runs", min_runs)
        return cls._make(AlertKind.FAILURE_RATE, share, clear_at, name, for_, runs)

    @classmethod
    def run_time(
        cls,
        over: Duration,
        *,
        task: str = "",
        for_: Duration = "1m",
        clear_at: Duration | None = None,
        min_runs: int = 20,
    ) -> Self:
        """One run of a task in a hundred takes longer than `over` (p99), over five minutes with at
        least `min_runs` runs."""
        seconds = _seconds("over", over)
        if seconds >= BOUNDS_S[-1]:
            raise ValueError(
                f"over must be less than {describe_ms(int(BOUNDS_S[-1] * 1000))}, the longest run "
                f"time that the history tells apart, found {over!r}"
            )
        calm = None if clear_at is None else _seconds("clear_at", clear_at)
        runs, name = _whole("min_runs", min_runs), _name("task", task)
        return cls._make(AlertKind.RUN_TIME, seconds, calm, name, for_, runs)

    @classmethod
    def overdue_schedule(
        cls,
        over: Duration = "5m",
        *,
        schedule: str = "",
        for_: Duration = 0,
        clear_at: Duration | None = None,
    ) -> Self:
        """A schedule was due longer than `over` ago, and no worker has fired it."""
        calm = None if clear_at is None else _seconds("clear_at", clear_at)
        seconds, name = _seconds("over", over), _name("schedule", schedule)
        return cls._make(AlertKind.OVERDUE_SCHEDULE, seconds, calm, name, for_)

    @classmethod
    def engine_memory(
        cls, over: float = 0.9, *, for_: Duration = "1m", clear_at: float | None = None
    ) -> Self:
        """A larger share than `over` of the engine's memory is used; on SQLite, of its disk."""
        share = _share("over", over)
        calm = 0.95 * share if clear_at is None else clear_at
        return cls._make(AlertKind.ENGINE_MEMORY, share, calm, "", for_)

    @classmethod
    def _make(
        cls,
        kind: AlertKind,
        over: float,
        clear_at: float | None,
        subject: str,
        for_: Duration,
        min_runs: int = 0,
    ) -> Self:
        calm = over * CALM if clear_at is None else _number("clear_at", clear_at)
        if calm > over:
            raise ValueError(f"clear_at must be at most {over:g}, the threshold, found {calm:g}")
        for_ms = to_ms(for_, name="for_")
        return cls(
            kind=kind,
            over=float(over),
            clear_at=float(calm),
            subject=subject,
            for_ms=for_ms,
            min_runs=min_runs,
        )

    @property
    def key(self) -> str:
        """The key of its stored state. A rule with another threshold is another rule."""
        numbers = float(self.over), float(self.clear_at), self.for_ms, self.min_runs
        packed = msgspec.json.encode((self.kind, self.subject, *numbers))
        return f"{self.kind}.{blake2b(packed, digest_size=8).hexdigest()}"

    @property
    def calm_ms(self) -> int:
        """How long a number must be low before the alert clears."""
        return min(self.for_ms, MAX_CALM_MS)

    def concerns(self, subject: str) -> bool:
        return self.subject in ("", subject)

    def __str__(self) -> str:
        """The rule in short, as in `oldest_age(mail) > 5m` and `no_worker for 5m`."""
        about = f"({self.subject})" if self.subject else ""
        over = "" if self.kind is AlertKind.NO_WORKER else f" > {number_text(self.kind, self.over)}"
        lasting = f" for {describe_ms(self.for_ms)}" if self.for_ms else ""
        return f"{self.kind}{about}{over}{lasting}"


def number_text(kind: AlertKind, value: float) -> str:
    """The number of a rule with its unit: seconds as 250ms, 2.5s or 1h30m."""
    if kind in _SECONDS:
        if 1 <= value < 10:
            return f"{value:.3g}s"
        return describe_ms(round(value * 1000) if value < 10 else int(value) * 1000)
    return f"{100 * value:.3g} %" if kind in _SHARES else f"{value:,.0f}"


class AlertEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of functions registered with `@app.on_alert`: an alert fires or clears."""

    id: str  # of the incident: an alert that clears has the id with which it fired
    state: EventState  # "test" for `windlass alerts test`
    kind: AlertKind
    rule: str  # such as `oldest_age(mail) > 5m`
    subject: str  # the queue, task or schedule; empty for the app as a whole
    value: float  # jobs, seconds or a share
    threshold: float
    since: datetime  # when the number exceeded the threshold
    at: datetime  # when the alert fired or cleared

    @property
    def text(self) -> str:
        """The event in words."""
        return _TEXTS[self.kind].format(
            subject=self.subject,
            of_queue=f" in queue {self.subject}" if self.subject else "",
            value=number_text(self.kind, self.value),
            threshold=number_text(self.kind, self.threshold),
            dead=count(round(self.value), "dead job"),
            ready=count(round(self.value), "ready job"),
            died=count(round(self.value), "job"),
        )


# ------------------------------------------------------------------------------------------ reading


def read_alerts(name: str, value: object) -> tuple[Alert, ...]:
    """Check the setting `alerts`."""
    if isinstance(value, Alert):
        raise ValueError(f"{name} must be a list, found the alert {value}: put it into a list")
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise ValueError(
            f"{name} must be a list of alerts such as [Alert.oldest_age('5m')], found {value!r}"
        )
    alerts = tuple(value)
    for one in alerts:
        if not isinstance(one, Alert):
            raise ValueError(
                f"{name} must be a list of alerts such as Alert.oldest_age('5m'), found {one!r}"
            )
    if len(alerts) > MAX_ALERTS:
        raise ValueError(f"{name} must have at most {MAX_ALERTS} alerts, found {len(alerts)}")
    return tuple(dict.fromkeys(alerts))


def default_alerts() -> tuple[Alert, ...]:
    """The setting `alerts` of an app that does not give it."""
    return (Alert.no_worker(),)


def join_rules(depth: int, growth: int, alerts: Sequence[Alert]) -> tuple[Alert, ...]:
    """All rules of an app: of the settings `dead_alert` and `dead_alert_growth`, unless they are 0,
    and of `alerts`."""
    rules = [Alert.dead_letters(depth)] if depth else []
    rules += [Alert.dead_growth(growth)] if growth else []
    return tuple(dict.fromkeys([*rules, *alerts]))


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be a whole number of at least 0, found {value!r}")
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ValueError(f"{name} must be a number of at least 0, found {value!r}")
    return value


def _share(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(
            f"{name} must be a share from 0 to less than 1, such as 0.2 for 20 %, found {value!r}"
        )
    return float(value)


def _seconds(name: str, value: Duration) -> float:
    return to_ms(value, name=name) / 1000


def _name(name: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > 256:
        raise ValueError(f"{name} must be a name, found {value!r}")
    return value
