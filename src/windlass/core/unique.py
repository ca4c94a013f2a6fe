"""Unique jobs: when a job holds its unique key, and the option `unique` of a task.

1. `Until` and `OnConflict` are the rules for engines: when a job releases its key, and what an
   enqueue does while another job holds the key.
2. `is_held` decides whether a key is held, from the state of the last job stored under the key and
   from its period. No verb acquires or releases a key, so the key is released in the same
   transaction in which the job changes its state.
3. `Unique` is the value of `@app.task(unique=...)`, checked when it is made.
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
    """When a job releases its unique key."""

    START = "start"  # at its start; a job that returns to its queue holds the key again
    END = "end"  # at its end in any state
    SUCCESS = "success"  # at success or cancellation; a dead job still holds the key


class OnConflict(StrEnum):
    """What an enqueue does while an earlier job holds the unique key."""

    RETURN = "return"  # the caller gets the earlier job
    REPLACE = "replace"  # the call replaces the earlier one, if that job still waits
    RAISE = "raise"  # the call is refused


#: The states of jobs that have not started, or have returned to their queue.
QUEUED: Final = frozenset({State.WAITING, State.SCHEDULED, State.READY, State.RETRYING})
#: The states in which a job holds its key.
HOLDING: Final = {
    Until.START: QUEUED,
    Until.END: QUEUED | {State.RUNNING},
    Until.SUCCESS: QUEUED | {State.RUNNING, State.DEAD},
}


def is_held(until: Until, state: State, period_until_ms: int, now_ms: int) -> bool:
    """Whether the last job stored under a key still holds the key."""
    return state in HOLDING[until] or period_until_ms > now_ms


@final
class Unique(Value):
    """Allow at most one job of a task for each key.

    `until` says how long a job holds its key: to its `"start"` (while it waits in its queue), to
    its `"end"` (while it waits or runs), or to its `"success"` (a dead job holds the key until it
    is retried or discarded). With `period` the key is held for at least this long after the
    enqueue, in any state of the job.

    The key is made of all arguments, or of the parameters in `by`.

    `on_conflict` says what `enqueue` does while a job holds the key. `"return"` returns that job.
    `"replace"` gives a waiting job the new arguments, time, priority and options, and raises
    `DuplicateJob` for a job that runs or has ended. `"raise"` always raises `DuplicateJob`.
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
    raise ValueError(f"period must be longer than 0, found {period!r}: leave it out for none")


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
