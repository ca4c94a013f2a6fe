"""Test states and ends of jobs: what a waiting caller reads, and how the engine wakes the caller.

Wake-ups use the real clock and are hints, so only the fastest of some has to be fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import Final

import pytest

from windlass.core.states import Reason, State
from windlass.engine.contract import (
    MIN_RECORD_MS,
    Buried,
    Claim,
    Engine,
    JobEnd,
    Outcome,
    Plan,
    Released,
    Retried,
    Snoozed,
    Succeeded,
    Unroutable,
)
from windlass.testing.contract.place import Place
from windlass.testing.contract.test_wait import AT_ONCE_S, SOON_S, fastest, job
from windlass.testing.contract.world import World, claim_jobs, retry_jobs

#: How long to wait before the test concludes that no wake-up comes.
NOTHING_S: Final = 0.1


class Heard:
    """Collect the ids that the engine reports to a waiting caller."""

    def __init__(self) -> None:
        self._ids: SimpleQueue[str] = SimpleQueue()

    def on_end(self, job_id: str) -> None:
        self._ids.put(job_id)

    def await_id(self, job_id: str, seconds: float = SOON_S) -> None:
        """Wait for an id, and skip other ids that the engine may report."""
        end = time.monotonic() + seconds
        while self._ids.get(timeout=max(0.0, end - time.monotonic())) != job_id:
            continue

    def has_heard(self, job_id: str, seconds: float = NOTHING_S) -> bool:
        try:
            self.await_id(job_id, seconds)
        except Empty:
            return False
        return True


def succeeded(claim: Claim) -> Outcome:
    return Succeeded(id=claim.id, token=claim.token, result=b"42", result_ttl_ms=60_000)


def buried(claim: Claim) -> Outcome:
    return Buried(id=claim.id, token=claim.token, reason=Reason.REJECTED, error=b"no")


def end_of(world: World, id: str) -> JobEnd:
    (end,) = world.engine.ends([id])
    assert end is not None
    return end


# ------------------------------------------------------------------------------------ what is read


def test_an_end_says_what_the_record_says_in_every_state(world: World) -> None:
    ends: list[Callable[[Claim], Outcome]] = [
        succeeded,
        buried,
        lambda claim: Retried(id=claim.id, token=claim.token, delay_ms=9, error=b"boom"),
        lambda claim: Released(id=claim.id, token=claim.token, started=True),
        lambda claim: Snoozed(id=claim.id, token=claim.token, delay_ms=9),
        lambda claim: Unroutable(id=claim.id, token=claim.token),
    ]
    for end in ends:
        world.put()
        world.finish(end(world.take()))
    world.engine.cancel([world.put(run_in_ms=9)])
    world.put(run_in_ms=9)
    world.put()
    world.take()
    ids = world.ids()
    assert len({record.state for record in world.records() if record}) == 7
    for found, record in zip(world.engine.ends(ids), world.records(), strict=True):
        assert record is not None
        is_dead = record.state is State.DEAD
        assert found == JobEnd(
            id=record.id,
            task=record.task,
            state=record.state,
            reason=record.reason,
            finished_ms=record.finished_ms,
            result=record.result,
            failure=record.failures[-1] if is_dead else None,
        )


def test_the_end_of_an_unknown_job_is_none(world: World) -> None:
    id = world.put()
    first, second, third = world.engine.ends(["unknown", id, "other"])
    assert (first, third) == (None, None)
    assert second is not None
    assert second.state is State.READY
    assert world.engine.ends([]) == []


def test_a_result_is_read_for_as_long_as_it_is_kept(world: World) -> None:
    world.put()
    claim = world.take()
    world.finish(succeeded(claim))
    assert end_of(world, claim.id).result == b"42"
    world.advance(60_000)
    end = end_of(world, claim.id)
    assert (end.state, end.result) == (State.SUCCEEDED, None)
    world.advance(MIN_RECORD_MS)
    world.engine.tend()
    assert world.engine.ends([claim.id]) == [None]


def test_the_newest_failure_is_told_of_one_that_died_again(world: World) -> None:
    world.put()
    claim = world.take()
    world.finish(buried(claim))
    retry_jobs(world.engine, [claim.id])
    token = world.take().token
    assert end_of(world, claim.id).failure is None
    world.finish(Buried(id=claim.id, token=token, reason=Reason.TIMED_OUT, error=b"again"))
    end = end_of(world, claim.id)
    assert end.reason is Reason.TIMED_OUT
    assert end.failure is not None
    assert end.failure.error == b"again"


# ------------------------------------------------------------------------------------- being woken

Ending = Callable[[World, str], None]


def finish_with(outcome: Callable[[Claim], Outcome], world: World, id: str) -> None:
    world.finish(outcome(world.take()))


def turn_with(outcome: Callable[[Claim], Outcome], world: World, id: str) -> None:
    world.engine.turn("worker", [outcome(world.take())], world.nonce(), Plan(), 1)


def cancel(world: World, id: str) -> None:
    world.engine.cancel([id])


def release_cancelled(world: World, id: str) -> None:
    claim = world.take()
    world.engine.cancel([id])
    world.finish(Released(id=id, token=claim.token, started=True))


def close_cancelled(world: World, id: str) -> None:
    world.take()
    world.engine.cancel([id])
    world.engine.close("worker", [], "ended")


def expire(world: World, id: str) -> None:
    world.advance(60_000)
    world.claim()


def purge(world: World, id: str) -> None:
    cursor = world.engine.purge("queue").cursor
    while cursor is not None:
        cursor = world.engine.purge("queue", cursor).cursor


ENDINGS: Final[dict[str, Ending]] = {
    "succeeded": partial(finish_with, succeeded),
    "buried": partial(finish_with, buried),
    "turned": partial(turn_with, succeeded),
    "cancelled": cancel,
    "cancelled while it ran": release_cancelled,
    "cancelled with its session": close_cancelled,
    "expired": expire,
    "removed": purge,
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
def test_a_caller_that_watches_hears_of_every_end(world: World, ending: Ending) -> None:
    heard = Heard()
    id = world.put(expires_in_ms=60_000)
    (end,) = world.engine.watch([id], heard.on_end)
    assert end is not None
    assert end.state is State.READY
    ending(world, id)
    heard.await_id(id)
    (end,) = world.engine.ends([id])
    assert end is None or end.state.is_final


def test_a_job_that_has_not_ended_is_not_told_of(world: World) -> None:
    heard = Heard()
    id = world.put()
    world.engine.watch([id, "unknown"], heard.on_end)
    claim = world.take()
    world.finish(Retried(id=id, token=claim.token, delay_ms=9, error=b"boom"))
    assert not heard.has_heard(id)
    world.engine.cancel([id])
    heard.await_id(id)  # the retry did not use up the watch


def test_an_end_that_was_seen_is_not_told_of_again(world: World) -> None:
    heard = Heard()
    id = world.put()
    world.finish(succeeded(world.take()))
    (end,) = world.engine.watch([id], heard.on_end)
    assert end is not None
    assert end.result == b"42"
    assert not heard.has_heard(id)


def test_every_caller_is_told_at_once_whoever_ends_the_job(variant: Place) -> None:
    callers = [(variant.open(), Heard()) for _ in range(3)]
    worker, numbers = variant.open(), count()

    def measure() -> float:
        id = f"job-{next(numbers)}"
        worker.put([job(id)])
        for engine, heard in callers:
            engine.watch([id], heard.on_end)
        claim = claim_one(worker, f"nonce-{id}")
        began = time.monotonic()
        worker.finish([succeeded(claim)])
        for _, heard in callers:
            heard.await_id(id)
        return time.monotonic() - began

    assert fastest(measure) < AT_ONCE_S


def claim_one(engine: Engine, nonce: str) -> Claim:
    (claim,) = claim_jobs(engine, "worker", nonce, Plan(), 1).claims
    return claim


def test_a_caller_hears_again_after_a_shutdown(world: World) -> None:
    for _ in range(2):
        heard = Heard()
        id = world.put()
        world.engine.watch([id], heard.on_end)
        world.engine.cancel([id])
        heard.await_id(id)
        world.engine.shutdown()


def test_watches_leave_nothing_behind(world: World) -> None:
    heard = Heard()
    for _ in range(3):
        world.engine.watch(world.put_many(5, run_in_ms=60_000), heard.on_end)
    world.advance(60_000)
    while world.engine.tend().more:
        continue
    assert world.engine.check() == []
