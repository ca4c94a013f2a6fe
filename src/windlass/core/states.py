"""The state machine of jobs: states, holds, reasons, events and the transition table.

This module is the specification: engines implement the same transitions in SQL or Lua, and the
tests of every engine are generated from `TABLE`, `AFTER_CANCEL_REQUEST` and `charge`.

In order: the vocabulary, the transition table, the rule for a requested cancellation, and the
effect of each event on the counters of a job.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import Final

import msgspec


class State(StrEnum):
    """The state of a job. The last three are final."""

    WAITING = "waiting"
    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in FINAL


FINAL: Final = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})


#: States of jobs that have yet to run.
WAITING: Final = (State.WAITING, State.SCHEDULED, State.READY, State.RETRYING)


class Hold(StrEnum):
    """Why a ready job cannot be claimed."""

    NONE = "none"
    LIMIT = "limit"
    BREAKER = "breaker"
    UNROUTABLE = "unroutable"
    PAUSED = "paused"


class Reason(StrEnum):
    """Why a job ended as `dead` or `cancelled`."""

    EXHAUSTED = "exhausted"  # every attempt failed
    REJECTED = "rejected"  # the task raised Reject, or its policy rejects the error
    CRASHED = "crashed"  # it crashed its process too often
    LOST = "lost"  # its workers lost their lease too often
    SNOOZED_OUT = "snoozed_out"  # it snoozed too often
    TIMED_OUT = "timed_out"
    EXPIRED = "expired"  # its `expires` passed before it started
    UNDECODABLE = "undecodable"  # its stored bytes or arguments cannot be decoded
    BAD_RESULT = "bad_result"  # it ran, but its result cannot be stored
    CANCELLED = "cancelled"  # a caller or an operator cancelled it


class Event(StrEnum):
    """The events of a job."""

    DUE = "due"
    CLAIM = "claim"
    SUCCEED = "succeed"
    RETRY = "retry"
    BURY = "bury"
    RELEASE = "release"
    SNOOZE = "snooze"
    UNROUTABLE = "unroutable"
    PROGRESS = "progress"
    LOSE = "lose"  # the session that held it expired
    CRASH = "crash"  # its process died, and no other job is suspect
    SUSPECT = "suspect"  # its process died, and other jobs are suspect too
    CANCEL = "cancel"
    EXPIRE = "expire"
    REVIVE = "revive"  # an operator retries it, with fresh budgets
    DISCARD = "discard"  # an operator removes it
    PURGE = "purge"  # its retention time is over
    CLEAR = "clear"  # an operator empties its queue


#: Events that carry the token of a claim. With a stale token they change nothing.
FENCED: Final = frozenset(
    {
        Event.SUCCEED,
        Event.RETRY,
        Event.BURY,
        Event.RELEASE,
        Event.SNOOZE,
        Event.UNROUTABLE,
        Event.PROGRESS,
    }
)

#: (state, event) -> next state. `None` removes the record.
#: An event that the table lacks for a state is refused and changes nothing.
TABLE: Final[dict[tuple[State, Event], State | None]] = {
    (State.SCHEDULED, Event.DUE): State.READY,
    (State.RETRYING, Event.DUE): State.READY,
    (State.READY, Event.DUE): State.READY,  # ends the delay of a job that was held as unroutable
    (State.READY, Event.CLAIM): State.RUNNING,
    (State.READY, Event.EXPIRE): State.CANCELLED,
    (State.RUNNING, Event.SUCCEED): State.SUCCEEDED,
    (State.RUNNING, Event.RETRY): State.RETRYING,
    (State.RUNNING, Event.BURY): State.DEAD,
    (State.RUNNING, Event.RELEASE): State.READY,
    (State.RUNNING, Event.SNOOZE): State.SCHEDULED,
    (State.RUNNING, Event.UNROUTABLE): State.READY,
    (State.RUNNING, Event.PROGRESS): State.RUNNING,
    (State.RUNNING, Event.LOSE): State.READY,
    (State.RUNNING, Event.CRASH): State.READY,
    (State.RUNNING, Event.SUSPECT): State.READY,
    (State.RUNNING, Event.CANCEL): State.RUNNING,  # sets cancel_requested
    (State.WAITING, Event.CANCEL): State.CANCELLED,
    (State.SCHEDULED, Event.CANCEL): State.CANCELLED,
    (State.READY, Event.CANCEL): State.CANCELLED,
    (State.RETRYING, Event.CANCEL): State.CANCELLED,
    (State.DEAD, Event.REVIVE): State.READY,
    (State.CANCELLED, Event.REVIVE): State.READY,
    (State.DEAD, Event.DISCARD): None,
    (State.CANCELLED, Event.DISCARD): None,
    (State.SUCCEEDED, Event.PURGE): None,
    (State.DEAD, Event.PURGE): None,
    (State.CANCELLED, Event.PURGE): None,
    (State.WAITING, Event.CLEAR): None,
    (State.SCHEDULED, Event.CLEAR): None,
    (State.READY, Event.CLEAR): None,
    (State.RETRYING, Event.CLEAR): None,
}

#: Events that end a running job as cancelled once its cancellation is requested. A success is still
#: a success.
AFTER_CANCEL_REQUEST: Final = frozenset(
    {
        Event.RETRY,
        Event.BURY,
        Event.RELEASE,
        Event.SNOOZE,
        Event.UNROUTABLE,
        Event.LOSE,
        Event.CRASH,
        Event.SUSPECT,
    }
)


def is_allowed(state: State, event: Event) -> bool:
    return (state, event) in TABLE


def next_state(state: State, event: Event, *, cancel_requested: bool = False) -> State | None:
    """The state after `event`. Raises `KeyError` for a transition that the table lacks."""
    target = TABLE[state, event]
    if cancel_requested and event in AFTER_CANCEL_REQUEST:
        return State.CANCELLED
    return target


class Counters(msgspec.Struct, frozen=True, gc=False):
    """The number of starts of a job, by budget.

    `attempt` includes the current claim, so a start without a report is counted. Every start is
    charged to exactly one budget: a crash, a loss, an interruption or a snooze returns the attempt
    and has its own counter.
    """

    attempt: int = 0
    starts: int = 0
    crashes: int = 0
    losses: int = 0
    interruptions: int = 0
    snoozes: int = 0
    strays: int = 0  # claims by workers that do not know the task


#: event -> change of each counter, for a claim that ended after user code started.
_CHARGES: Final[dict[Event, dict[str, int]]] = {
    Event.CLAIM: {"attempt": 1, "starts": 1},
    Event.RELEASE: {"attempt": -1, "interruptions": 1},
    Event.SUSPECT: {"attempt": -1, "interruptions": 1},
    Event.SNOOZE: {"attempt": -1, "snoozes": 1},
    Event.UNROUTABLE: {"attempt": -1, "starts": -1, "strays": 1},
    Event.LOSE: {"attempt": -1, "losses": 1},
    Event.CRASH: {"attempt": -1, "crashes": 1},
}
#: event -> change of each counter, for a claim that ended before user code ran.
_UNSTARTED: Final[dict[Event, dict[str, int]]] = {
    Event.RELEASE: {"attempt": -1, "starts": -1},
    Event.BURY: {"attempt": -1, "starts": -1},
}


def charge(counters: Counters, event: Event, *, started: bool = True) -> Counters:
    """The counters after `event`. An operator's retry starts with fresh budgets."""
    if event is Event.REVIVE:
        return Counters()
    changes = _CHARGES.get(event, {}) if started else _UNSTARTED.get(event, {})
    return msgspec.structs.replace(
        counters, **{name: getattr(counters, name) + by for name, by in changes.items()}
    )


#: After this many losses a job runs alone, so that only this job can cause a further crash.
SUSPECT_AFTER_LOSSES: Final = 2
#: A job that was lost this often is ended as dead by the worker that claims it next.
MAX_LOSSES: Final = 10
#: A job that was interrupted this often is ended as dead by the worker that claims it next.
MAX_INTERRUPTIONS: Final = 100

_STRAY_BASE_MS: Final = 1_000
_STRAY_CAP_MS: Final = 60_000


def stray_delay_ms(strays: int) -> int:
    """The delay before another claim of a job, after workers without its task released it."""
    return int(min(_STRAY_BASE_MS * 2 ** min(strays, 10), _STRAY_CAP_MS))


#: A job ends as dead when its call fits no worker's version of the task for a day.
MAX_MISMATCHED_MS: Final = 24 * 60 * 60 * 1_000


def is_mismatched_for_good(strays: int) -> bool:
    """Whether the delays (`stray_delay_ms`) of this many releases add up to a day."""
    return strays >= _strays_in(MAX_MISMATCHED_MS)


@cache
def _strays_in(rest_ms: int) -> int:
    strays = 0
    while rest_ms > 0:
        rest_ms -= stray_delay_ms(strays)
        strays += 1
    return strays
