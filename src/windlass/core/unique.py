"""Unique jobs: which state of a job holds its key, and what a task declares.

1. `Until` and `OnConflict` are what engines know: how far into its life a job holds its key, and
   what becomes of a call that finds the key held.
2. `is_held` is the whole rule. Nobody takes a key away or gives it back: the last job that was
   stored under it holds it for as long as its state, or the period, says so. So a key changes
   hands in the same step in which a job changes its state.
3. `Unique` is what `@app.task(unique=...)` takes: a value, checked when it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Literal, TypeVar, final

from windlass.core.durations import Duration, describe_ms, to_ms
from windlass.core.states import State
from windlass.core.value_type import Value

Choice = TypeVar("Choice", bound=StrEnum)


class Until(StrEnum):
    """What ends the hold of a job on its unique key."""

    START = "start"  # it waits no more; one that comes back to its queue holds the key again
    END = "end"  # it has ended, in whatever way
    SUCCESS = "success"  # it has succeeded or was cancelled; a dead one still holds the key


class OnConflict(StrEnum):
    """What becomes of a call whose key is held by an earlier job."""

    RETURN = "return"  # the caller gets the earlier job
    REPLACE = "replace"  # the call takes the place of the earlier one, if that still waits
    RAISE = "raise"  # it is refused


#: Those that have not started, or have come back to their queue.
QUEUED: Final = frozenset({State.WAITING, State.SCHEDULED, State.READY, State.RETRYING})
#: In which states a job holds its key.
HOLDING: Final = {
    Until.START: QUEUED,
    Until.END: QUEUED | {State.RUNNING},
    Until.SUCCESS: QUEUED | {State.RUNNING, State.DEAD},
}


def is_held(until: Until, state: State, period_until_ms: int, now_ms: int) -> bool:
    """Whether the last job that was stored under a key holds it."""
    return state in HOLDING[until] or period_until_ms > now_ms


@final
class Unique(Value):
    """At most one job of a task for each key.

    `until` says how long a job holds its key: to its `"start"` (while it waits in its queue), to
    its `"end"` (while it waits or runs), or to its `"success"`: then a dead job holds it until
    somebody retries or discards it. With `period` the key is held for at least so long after the
    enqueue, whatever becomes of the job.

    The key is made of all arguments, or of the parameters that `by` names.

    `on_conflict` says what `enqueue` does while the key is held. `"return"` gives the job that
    holds it. `"replace"` gives that job the new arguments, time, priority and options as long as it
    waits; one that runs or has ended cannot be replaced, which raises `DuplicateJob`. `"raise"`
    always raises that.
    """

    until: Until
    period_ms: int
    by: tuple[str, ...] | None
    on_conflict: OnConflict

    def __init__(
        self,
        until: Literal["start", "end", "success"] = "end",
        *,
        period: Duration | None = None,
        by: str | Sequence[str] | None = None,
        on_conflict: Literal["return", "replace", "raise"] = "return",
    ) -> None:
        self._set(
            until=_choice("until", Until, until),
            period_ms=0 if period is None else _period_ms(period),
            by=None if by is None else _names(by),
            on_conflict=_choice("on_conflict", OnConflict, on_conflict),
        )

    def __repr__(self) -> str:
        period = f", period={describe_ms(self.period_ms)!r}" if self.period_ms else ""
        by = f", by={list(self.by)!r}" if self.by is not None else ""
        return f"Unique({str(self.until)!r}{period}{by}, on_conflict={str(self.on_conflict)!r})"


def _period_ms(period: Duration) -> int:
    milliseconds = to_ms(period, name="period")
    if milliseconds > 0:
        return milliseconds
    raise ValueError(f"period must be longer than nothing, found {period!r}: leave it out for none")


def _choice(name: str, choices: type[Choice], value: object) -> Choice:
    if isinstance(value, str) and value in set(choices):
        return choices(value)
    words = ", ".join(repr(str(choice)) for choice in choices)
    raise ValueError(f"{name} of Unique must be one of {words}, found {value!r}")


def _names(by: object) -> tuple[str, ...]:
    names = (by,) if isinstance(by, str) else by
    if isinstance(names, Sequence) and names and all(isinstance(name, str) for name in names):
        return tuple(dict.fromkeys(names))
    raise TypeError(
        f"by of Unique must name the parameters that make the key, found {by!r}: write "
        'by="user_id" or by=["user_id", "month"], or leave it out for all arguments.'
    )
