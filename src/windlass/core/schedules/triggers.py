"""Schedules as values: `Cron` and `Every`, with their rules for missed and overlapping runs.

1. `Cron` runs by the clock of a time zone; `core/schedules/cron.py` documents daylight saving time.
2. `Every` runs at fixed intervals of real time, counted from `start`, or else from 1970 in UTC. So
   all processes compute the same instants, and restarts do not delay an interval that is longer
   than the time between two deploys.
3. `next_after` and `last_until` return the occurrences around an instant, in UTC milliseconds.
   `core/schedules/occurrences.py` decides which of them run.
4. `to_data` and `from_data` store a schedule, with a version.

A schedule is an immutable value, checked when it is made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Annotated, Final, Literal, final, get_args

import msgspec

from windlass.core import foreign_words
from windlass.core.durations import (
    MAX_DURATION_MS,
    Duration,
    describe_ms,
    instant,
    instant_ms,
    to_ms,
)
from windlass.core.schedules.cron import (
    LAST_YEAR,
    first_after,
    last_until,
    normal_text,
    read_expression,
)
from windlass.core.schedules.time_zones import zone_named
from windlass.core.serialization.frame import refuse_newer
from windlass.core.value_type import Value
from windlass.errors import DecodeError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

#: The format that `to_data` writes, and the newest that `from_data` reads.
VERSION: Final = 1
#: The shortest interval: a schedule does not replace a loop.
MIN_INTERVAL_MS: Final = 1_000
#: The largest limit of `All`.
MAX_CATCH_UP: Final = 1_000
#: There is no occurrence after this instant.
LAST_MS: Final = int(datetime(LAST_YEAR, 12, 31, tzinfo=UTC).timestamp()) * 1_000


class All(msgspec.Struct, frozen=True):
    """For `missed`: run all missed occurrences, at most the `limit` newest ones."""

    limit: int

    def __post_init__(self) -> None:
        limit: object = self.limit  # a caller may pass anything
        if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_CATCH_UP:
            raise ValueError(
                f"the limit of All must be a whole number from 1 to {MAX_CATCH_UP}, found {limit!r}"
            )


Missed = Literal["skip", "once"] | All
Overlap = Literal["allow", "skip", "cancel_previous", "queue_one"]


class Schedule(Value, ABC):
    """The base class of `Cron` and `Every`.

    `start` and `end` are datetimes with a time zone: no occurrence is before or after them.

    `jitter` delays each run by up to this duration. The delay is derived from the name of the
    schedule and the occurrence, so that all processes agree and runs of several schedules spread.

    `missed` is for occurrences that passed while no worker ran: "skip" skips them, "once" runs the
    newest of them, and `All(10)` runs the ten newest.

    `overlap` is for an occurrence that is due while an earlier run is not finished. "allow" runs
    both: this is the default, because it skips nothing, and a run that hangs cannot silently stop
    the schedule. "skip" skips the occurrence, "cancel_previous" cancels the earlier run, and
    "queue_one" lets one occurrence wait and skips further ones.
    """

    start_ms: int | None
    end_ms: int | None
    jitter_ms: int
    missed: Missed
    overlap: Overlap

    def _set_options(
        self,
        start: datetime | None,
        end: datetime | None,
        jitter: Duration,
        missed: Missed,
        overlap: Overlap,
    ) -> None:
        self._set(
            start_ms=None if start is None else _bound_ms(start, "start"),
            end_ms=None if end is None else _bound_ms(end, "end"),
            jitter_ms=to_ms(jitter, name="jitter"),
            missed=missed,
            overlap=overlap,
        )
        if not isinstance(missed, All) and missed not in ("skip", "once"):
            raise ValueError(f'missed must be "skip", "once" or All(limit), found {missed!r}')
        if overlap not in get_args(Overlap):
            expected = ", ".join(f'"{name}"' for name in get_args(Overlap))
            raise ValueError(f"overlap must be one of {expected}; found {overlap!r}")

    def _refuse_never(self) -> None:
        """Raise if `start` and `end` leave no occurrence. Call it last."""
        if self.next_after(-1) is None:
            raise ValueError(
                f"a schedule must have an occurrence between its start and its end, found none in "
                f"{self!r}: give a later end, or an earlier start"
            )

    def next_after(self, instant_ms: int) -> int | None:
        """The first occurrence after this instant, or None if there are no more."""
        from_ms = max(instant_ms, (self.start_ms or 0) - 1)
        last_ms = LAST_MS if self.end_ms is None else self.end_ms
        found_ms = self._first_after(from_ms) if from_ms < last_ms else None
        return None if found_ms is None or found_ms > last_ms else found_ms

    def last_until(self, instant_ms: int) -> int | None:
        """The last occurrence at or before this instant, or None if there is none yet."""
        last_ms = min(instant_ms, LAST_MS if self.end_ms is None else self.end_ms)
        first_ms = self.start_ms or 0
        found_ms = self._last_until(last_ms) if last_ms >= first_ms else None
        return None if found_ms is None or found_ms < first_ms else found_ms

    def upcoming(self, instant_ms: int) -> Iterator[int]:
        """The occurrences after this instant, in order."""
        found_ms = self.next_after(instant_ms)
        while found_ms is not None:
            yield found_ms
            found_ms = self.next_after(found_ms)

    def count_between(self, first_ms: int, last_ms: int, most: int) -> int:
        """The number of occurrences between two instants. Counting stops at `most`, because it
        takes long."""
        later = self.upcoming(first_ms - 1)
        return sum(1 for _ in takewhile(lambda at_ms: at_ms <= last_ms, islice(later, most)))

    @abstractmethod
    def _first_after(self, instant_ms: int) -> int | None:
        """The first occurrence after an instant from 1970 to `LAST_MS`, ignoring `end`."""

    @abstractmethod
    def _last_until(self, instant_ms: int) -> int | None:
        """The last occurrence until an instant from 1970 to `LAST_MS`, ignoring `start`."""

    @abstractmethod
    def _timing_data(self) -> dict[str, object]: ...

    @abstractmethod
    def _arguments(self) -> Iterator[str]:
        """The arguments that only this class takes, as source code."""

    @abstractmethod
    def _timing(self) -> str:
        """The times of the schedule in words."""

    def to_data(self) -> dict[str, object]:
        """Convert to plain data for `from_data`. The same schedule always gives the same data."""
        options: dict[str, object] = {
            "start_ms": self.start_ms,
            "end_ms": self.end_ms,
            "jitter_ms": self.jitter_ms or None,
            "missed": self.missed.limit if isinstance(self.missed, All) else self.missed,
            "overlap": self.overlap,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return {"version": VERSION, **self._timing_data(), **given}

    @staticmethod
    def from_data(data: object) -> Cron | Every:
        """Read the data that `to_data` wrote. Raises `DecodeError` for other data, and
        `NewerFormat` for data of a newer windlass."""
        _refuse_newer(data)
        try:
            return msgspec.convert(data, _StoredTrigger).schedule()
        except (ValueError, TypeError) as error:
            raise DecodeError(f"this is not a stored schedule: {error}") from error

    def describe(self) -> str:
        """The schedule in words, for operators."""
        return ", ".join((self._timing(), *self._described_options()))

    def _described_options(self) -> Iterator[str]:
        if self.start_ms is not None:
            yield f"from {_instant(self.start_ms)}"
        if self.end_ms is not None:
            yield f"until {_instant(self.end_ms)}"
        if self.jitter_ms:
            yield f"up to {describe_ms(self.jitter_ms)} later"
        if isinstance(self.missed, All):
            yield f"missed runs made up, {self.missed.limit} at most"
        elif self.missed == "skip":
            yield "missed runs skipped"
        if self.overlap != "allow":
            yield _OVERLAP_WORDS[self.overlap]

    def __repr__(self) -> str:
        arguments = (*self._arguments(), *self._option_arguments())
        return f"{type(self).__name__}({', '.join(arguments)})"

    def _option_arguments(self) -> Iterator[str]:
        for name, at_ms in (("start", self.start_ms), ("end", self.end_ms)):
            if at_ms is not None:
                yield f"{name}={instant(at_ms)!r}"
        if self.jitter_ms:
            yield f"jitter={describe_ms(self.jitter_ms)!r}"
        if self.missed != "once":
            yield f"missed={self.missed!r}"
        if self.overlap != "allow":
            yield f"overlap={self.overlap!r}"


_OVERLAP_WORDS: Final = {
    "skip": "skipped while an earlier run is not finished",
    "cancel_previous": "cancels an earlier run that is not finished",
    "queue_one": "one waits while an earlier run is not finished",
}


@final
class Cron(Schedule):
    """Runs when the clock of a time zone shows the times of a cron expression.

    `Cron("0 3 * * *", tz="Europe/Paris")` is three o'clock every night in Paris. Without `tz` it is
    the time zone of the app, which is UTC unless it was set.
    """

    expression: str
    tz: str | None

    def __init__(
        self,
        expression: str,
        *,
        tz: str | ZoneInfo | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        jitter: Duration = 0,
        missed: Missed = "once",
        overlap: Overlap = "allow",
    ) -> None:
        self._set(expression=_expression(expression), tz=_zone_name(tz))
        self._set_options(start, end, jitter, missed, overlap)
        self._refuse_never()

    def in_zone(self, tz: str) -> Cron:
        """This schedule in the time zone `tz`, unless it already has a time zone."""
        if self.tz is not None:
            return self
        return Cron(
            self.expression,
            tz=tz,
            start=instant(self.start_ms),
            end=instant(self.end_ms),
            jitter=timedelta(milliseconds=self.jitter_ms),
            missed=self.missed,
            overlap=self.overlap,
        )

    def _first_after(self, instant_ms: int) -> int | None:
        found_s = first_after(read_expression(self.expression), self._zone(), instant_ms // 1_000)
        return None if found_s is None else found_s * 1_000

    def _last_until(self, instant_ms: int) -> int | None:
        found_s = last_until(read_expression(self.expression), self._zone(), instant_ms // 1_000)
        return None if found_s is None else found_s * 1_000

    def _zone(self) -> ZoneInfo:
        return zone_named(self.tz or "UTC")

    def _timing_data(self) -> dict[str, object]:
        zone = {} if self.tz is None else {"tz": self.tz}
        return {"cron": self.expression, **zone}

    def _timing(self) -> str:
        return f"cron {self.expression} in {self.tz or 'UTC'}"

    def _arguments(self) -> Iterator[str]:
        yield repr(self.expression)
        if self.tz is not None:
            yield f"tz={self.tz!r}"


@final
class Every(Schedule):
    """Runs at fixed intervals of real time, independent of local clocks.

    `Every("10m")` is every ten minutes. The intervals are counted from `start`, which is then the
    first occurrence, or else from the start of 1970 in UTC: `Every("1h")` is on the hour.
    """

    interval_ms: int

    @foreign_words.refuse_foreign_arguments("Every", foreign_words.OF_EVERY)
    def __init__(
        self,
        interval: Duration,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        jitter: Duration = 0,
        missed: Missed = "once",
        overlap: Overlap = "allow",
    ) -> None:
        self._set(interval_ms=_interval_ms(interval))
        self._set_options(start, end, jitter, missed, overlap)
        if self.jitter_ms > self.interval_ms:
            raise ValueError(
                f"jitter must be at most the interval, {describe_ms(self.interval_ms)}, found "
                f"{describe_ms(self.jitter_ms)}: a run could start after the next one"
            )
        self._refuse_never()

    def count_between(self, first_ms: int, last_ms: int, most: int) -> int:
        """Compute the number without iterating."""
        first, last = self.next_after(first_ms - 1), self.last_until(last_ms)
        if first is None or last is None or last < first:
            return 0
        return (last - first) // self.interval_ms + 1

    def _first_after(self, instant_ms: int) -> int:
        anchor_ms = self.start_ms or 0
        return anchor_ms + ((instant_ms - anchor_ms) // self.interval_ms + 1) * self.interval_ms

    def _last_until(self, instant_ms: int) -> int:
        anchor_ms = self.start_ms or 0
        return anchor_ms + (instant_ms - anchor_ms) // self.interval_ms * self.interval_ms

    def _timing_data(self) -> dict[str, object]:
        return {"every_ms": self.interval_ms}

    def _timing(self) -> str:
        return f"every {describe_ms(self.interval_ms)}"

    def _arguments(self) -> Iterator[str]:
        yield repr(describe_ms(self.interval_ms))


# --------------------------------------------------------------------------------- reading options


def _expression(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f'a cron expression must be text such as "0 3 * * *", found {value!r}')
    read_expression(value)
    return normal_text(value)


def _zone_name(value: object) -> str | None:
    name = value if value is None or isinstance(value, str) else getattr(value, "key", None)
    if name is None and value is not None:
        raise TypeError(
            f'tz must be the name of a time zone such as "Europe/Paris", found {value!r}'
        )
    if name is not None:
        zone_named(name)
    return name


def _interval_ms(value: Duration) -> int:
    interval_ms = to_ms(value, name="the interval")
    if interval_ms < MIN_INTERVAL_MS:
        raise ValueError(
            f"the interval must be at least {describe_ms(MIN_INTERVAL_MS)}, found {value!r}: for "
            "less, let one job do several rounds"
        )
    return interval_ms


def _bound_ms(value: datetime, name: str) -> int:
    at_ms = instant_ms(value, name=name)
    if not 0 <= at_ms <= LAST_MS:
        raise ValueError(
            f"{name} must be between 1970 and {LAST_YEAR}, found {value.isoformat()}: leave it "
            "out for no bound"
        )
    return at_ms


# --------------------------------------------------------------------------- storing and describing

_Instant = Annotated[int, msgspec.Meta(ge=0, le=LAST_MS)]
_Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=MAX_DURATION_MS)]


class _StoredTrigger(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A stored schedule: with `cron`, or with `every_ms`."""

    version: Literal[1]
    cron: str | None = None
    tz: str | None = None
    every_ms: _Milliseconds | None = None
    start_ms: _Instant | None = None
    end_ms: _Instant | None = None
    jitter_ms: _Milliseconds = 0
    missed: Literal["skip", "once"] | int
    overlap: Overlap

    def schedule(self) -> Cron | Every:
        start, end = instant(self.start_ms), instant(self.end_ms)
        jitter, overlap = timedelta(milliseconds=self.jitter_ms), self.overlap
        missed = All(self.missed) if isinstance(self.missed, int) else self.missed
        match self.cron, self.every_ms, self.tz:
            case str(text), None, tz:
                return Cron(
                    text, tz=tz, start=start, end=end, jitter=jitter, missed=missed, overlap=overlap
                )
            case None, int(every_ms), None:
                every = timedelta(milliseconds=every_ms)
                return Every(
                    every, start=start, end=end, jitter=jitter, missed=missed, overlap=overlap
                )
            case _:
                raise ValueError("expected cron, with tz or without, or every_ms alone")


class _TriggerVersion(msgspec.Struct):
    version: int


#: Built at import: msgspec crashes when two threads inspect a class for the first time at once.
msgspec.json.Decoder(_StoredTrigger)
msgspec.json.Decoder(_TriggerVersion)


def _refuse_newer(data: object) -> None:
    try:
        found = msgspec.convert(data, _TriggerVersion).version
    except msgspec.ValidationError:
        return  # the full decoder reports the error
    refuse_newer("the stored schedule was", found, VERSION)


def _instant(at_ms: int) -> str:
    return instant(at_ms).isoformat().replace("+00:00", "Z")
