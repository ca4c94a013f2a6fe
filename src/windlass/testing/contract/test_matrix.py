"""Every state with every event, generated from the table: the transition happens, or nothing does.

Legal transitions bring a new job into the state; then the verb that causes the event is called. If
the table has the cell, state and counters must match `next_state` and `charge`; otherwise the
record must not change. Running jobs are tried with and without a requested cancellation, and each
fenced event with a wrong token as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from windlass.core.states import (
    FENCED,
    TABLE,
    Event,
    Reason,
    State,
    charge,
    is_allowed,
    next_state,
)
from windlass.engine.contract import (
    Beat,
    Buried,
    JobRecord,
    Outcome,
    Progressed,
    Released,
    Retried,
    Snoozed,
    Succeeded,
    Unroutable,
)
from windlass.testing.contract.place import OPTIONS
from windlass.testing.contract.world import LEASE_MS, World, retry_jobs

#: Longer than the retention of dead jobs; half the retention of the success below.
AGES_MS: Final = 10 * OPTIONS.dead_ttl_ms
#: States that a put or a move can lead to.
REACHABLE: Final = sorted({State.READY, State.SCHEDULED, *TABLE.values()} - {None}, key=str)


@dataclass
class Subject:
    """A job in some state, and its current or last claim."""

    world: World
    id: str
    token: str = "never claimed"
    session: str = "none"

    def claim(self) -> None:
        self.session = "holder"
        self.token = self.world.take(self.session).token

    def finish(self, outcome: Outcome) -> None:
        self.world.engine.finish([outcome])

    def record(self) -> JobRecord | None:
        (record,) = self.world.engine.get([self.id])
        return record


# ------------------------------------------------------------------------- into each state


def make_ready(subject: Subject) -> None:
    """Leave the job unchanged: a new job is ready."""


def make_scheduled(subject: Subject) -> None:
    subject.claim()
    subject.finish(Snoozed(id=subject.id, token=subject.token, delay_ms=AGES_MS))


def make_running(subject: Subject) -> None:
    subject.claim()


def make_retrying(subject: Subject) -> None:
    subject.claim()
    outcome = Retried(id=subject.id, token=subject.token, delay_ms=AGES_MS, error=b"boom")
    subject.finish(outcome)


def make_succeeded(subject: Subject) -> None:
    subject.claim()
    outcome = Succeeded(
        id=subject.id, token=subject.token, result=b"result", result_ttl_ms=2 * AGES_MS
    )
    subject.finish(outcome)


def make_dead(subject: Subject) -> None:
    subject.claim()
    outcome = Buried(id=subject.id, token=subject.token, reason=Reason.REJECTED, error=b"no")
    subject.finish(outcome)


def make_cancelled(subject: Subject) -> None:
    subject.world.engine.cancel([subject.id])


MAKE: Final[dict[State, Callable[[Subject], None]]] = {
    State.READY: make_ready,
    State.SCHEDULED: make_scheduled,
    State.RUNNING: make_running,
    State.RETRYING: make_retrying,
    State.SUCCEEDED: make_succeeded,
    State.DEAD: make_dead,
    State.CANCELLED: make_cancelled,
}


# -------------------------------------------------------------------------------- each event


def pass_ages(subject: Subject) -> None:
    """Let a very long time pass; then the holder sends a heartbeat."""
    world = subject.world
    world.advance(AGES_MS)
    world.engine.beat([Beat(session=subject.session)])


def fall_due(subject: Subject) -> None:
    """Let a claim from an unused queue promote due jobs; the claim gets none."""
    pass_ages(subject)
    subject.world.claim("promoter", queues=("unused",))


def be_claimed(subject: Subject) -> None:
    subject.world.claim("claimer")


def expire(subject: Subject) -> None:
    """Let the job's `expires` pass; then a worker claims."""
    subject.world.advance(LEASE_MS)
    subject.world.engine.beat([Beat(session=subject.session)])
    subject.world.claim("claimer")


def lose(subject: Subject) -> None:
    subject.world.pass_time(LEASE_MS)
    subject.world.claim("reaper", queues=("unused",))


def crash(subject: Subject) -> None:
    subject.world.engine.close(subject.session, [subject.id], "killed")


def suspect(subject: Subject) -> None:
    """Close the session with this job and a second one as suspects."""
    world = subject.world
    neighbour = world.put(priority=100, queue="neighbour")
    world.claim(subject.session, queues=("neighbour",))
    world.engine.close(subject.session, [subject.id, neighbour], "killed")


def purge(subject: Subject) -> None:
    pass_ages(subject)
    pass_ages(subject)
    subject.world.engine.tend()


def clear(subject: Subject) -> None:
    cursor = subject.world.engine.purge("queue").cursor
    while cursor is not None:
        cursor = subject.world.engine.purge("queue", cursor).cursor


def ending(make: Callable[[str, str], Outcome]) -> Callable[[Subject], None]:
    return lambda subject: subject.finish(make(subject.id, subject.token))


CAUSE: Final[dict[Event, Callable[[Subject], object]]] = {
    Event.DUE: fall_due,
    Event.CLAIM: be_claimed,
    Event.SUCCEED: ending(lambda id, token: Succeeded(id=id, token=token)),
    Event.RETRY: ending(lambda id, token: Retried(id=id, token=token, delay_ms=9, error=b"")),
    Event.BURY: ending(
        lambda id, token: Buried(id=id, token=token, reason=Reason.EXHAUSTED, error=b"")
    ),
    Event.RELEASE: ending(lambda id, token: Released(id=id, token=token, started=True)),
    Event.SNOOZE: ending(lambda id, token: Snoozed(id=id, token=token, delay_ms=9)),
    Event.UNROUTABLE: ending(lambda id, token: Unroutable(id=id, token=token)),
    Event.PROGRESS: ending(lambda id, token: Progressed(id=id, token=token, progress=b"half")),
    Event.LOSE: lose,
    Event.CRASH: crash,
    Event.SUSPECT: suspect,
    Event.CANCEL: lambda subject: subject.world.engine.cancel([subject.id]),
    Event.EXPIRE: expire,
    Event.REVIVE: lambda subject: retry_jobs(subject.world.engine, [subject.id]),
    Event.DISCARD: lambda subject: subject.world.engine.discard([subject.id]),
    Event.PURGE: purge,
    Event.CLEAR: clear,
}


# ----------------------------------------------------------------------------------- the matrix

CELLS: Final = [
    pytest.param(state, event, asked, id=f"{state}-{event}" + ("-asked" if asked else ""))
    for state in REACHABLE
    for event in Event
    for asked in ((False, True) if state is State.RUNNING else (False,))
]


def subject_in(world: World, state: State, event: Event, *, asked: bool, **fields: Any) -> Subject:
    expires_in_ms = LEASE_MS if event is Event.EXPIRE else None
    subject = Subject(world, world.put(expires_in_ms=expires_in_ms, **fields))
    MAKE[state](subject)
    if asked:
        world.engine.cancel([subject.id])
    record = subject.record()
    assert record is not None
    assert (record.state, record.cancel_requested) == (state, asked)
    return subject


def test_every_reachable_state_and_every_event_is_tried() -> None:
    assert set(MAKE) == set(REACHABLE)
    assert set(CAUSE) == set(Event)


@pytest.mark.parametrize(("state", "event", "asked"), CELLS)
def test_a_move_happens_as_the_table_says(
    world: World, state: State, event: Event, asked: bool
) -> None:
    subject = subject_in(world, state, event, asked=asked)
    before = subject.record()
    assert before is not None
    CAUSE[event](subject)
    after = subject.record()
    if not is_allowed(state, event):
        assert after == before
        return
    target = next_state(state, event, cancel_requested=asked)
    if target is None:
        assert after is None
        return
    assert after is not None
    assert after.state is target
    assert after.counters == charge(before.counters, event)
    assert (after.finished_ms is not None) is target.is_final
    if target is State.CANCELLED:
        assert after.reason is (Reason.EXPIRED if event is Event.EXPIRE else Reason.CANCELLED)
    assert world.engine.check() == []


@pytest.mark.parametrize("event", sorted(FENCED))
@pytest.mark.parametrize("state", REACHABLE)
def test_a_wrong_token_moves_nothing(world: World, state: State, event: Event) -> None:
    subject = subject_in(world, state, event, asked=False)
    before = subject.record()
    subject.token = "wrong"
    CAUSE[event](subject)
    assert subject.record() == before
