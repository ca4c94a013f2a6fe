"""Waiting: a wait ends soon after there is something to claim, on a nudge, or after its time.

These tests run by the real clock. Wake-ups are hints, and engines look by themselves too: so it is
the fastest of a few that has to be faster than looking.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from windlass.engine.contract import Beat, Engine, NewJob, Plan, Retried, Succeeded, Verdict
from windlass.testing.contract.place import OPTIONS, Place

#: A wait that nothing ends; long enough to be told from one that something ended.
LONG_MS = 20_000
#: What "soon" may take on a slow machine.
SOON_S = 5.0
#: What a wake-up may take: less than any engine takes to look by itself.
AT_ONCE_S = 0.15


def job(id: str = "job", queue: str = "queue", run_in_ms: int = 0) -> NewJob:
    return NewJob(id=id, task="task", queue=queue, payload=b"", run_in_ms=run_in_ms)


def wait_for_work(engine: Engine, plan: Plan, session: str = "worker") -> str:
    """What an idle worker does: claim, and wait when there is nothing."""
    deadline = time.monotonic() + LONG_MS / 1000
    for turn in range(1000):
        batch = engine.claim(session, f"{session}-{turn}", plan, 1)
        if batch.claims:
            return batch.claims[0].id
        left_ms = int((deadline - time.monotonic()) * 1000)
        if left_ms <= 0:
            break
        next_ms = LONG_MS if batch.next_in_ms is None else batch.next_in_ms
        engine.wait(plan, min(left_ms, next_ms))
    raise AssertionError("nothing came")


@contextmanager
def in_thread(work: Callable[..., object], *arguments: object) -> Iterator[threading.Event]:
    """Run a call beside the test; the event is set when it has returned."""
    returned = threading.Event()

    def run() -> None:
        work(*arguments)
        returned.set()

    thread = threading.Thread(target=run)
    thread.start()
    yield returned
    thread.join(LONG_MS / 1000)


def fastest(measure: Callable[[], float]) -> float:
    """The best of a few: a slow machine delays one, an engine that only polls delays all."""
    return min(measure() for _ in range(3))


def seconds_to_wait(engine: Engine, plan: Plan) -> float:
    started = time.monotonic()
    engine.wait(plan, LONG_MS)
    return time.monotonic() - started


def test_there_is_work_already(engine: Engine) -> None:
    engine.put([job()])
    assert fastest(lambda: seconds_to_wait(engine, Plan())) < AT_ONCE_S
    plan = Plan(queues=("other", "queue"))
    assert fastest(lambda: seconds_to_wait(engine, plan)) < AT_ONCE_S


def test_a_timeout_ends_a_wait(engine: Engine) -> None:
    started = time.monotonic()
    engine.wait(Plan(queues=("queue",)), 100)
    assert 0.09 < time.monotonic() - started < SOON_S
    engine.wait(Plan(), 0)


@pytest.mark.parametrize("plan", [Plan(), Plan(queues=("queue",))])
def test_a_put_by_another_ends_a_wait(variant: Place, plan: Plan) -> None:
    waiting, putting = variant.open(), variant.open()
    numbers = count()

    def measure() -> float:
        number = next(numbers)
        with in_thread(wait_for_work, waiting, plan, f"worker-{number}") as returned:
            assert not returned.wait(0.05)
            putting.put([job(f"job-{number}")])
            started = time.monotonic()
            assert returned.wait(SOON_S)
            return time.monotonic() - started

    assert fastest(measure) < AT_ONCE_S


def test_every_waiter_finds_its_job(variant: Place) -> None:
    found: list[str] = []

    def work(number: int) -> None:
        engine = variant.open()
        found.append(wait_for_work(engine, Plan(), f"worker-{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    variant.open().put([job(f"job-{number}") for number in range(4)])
    for thread in threads:
        thread.join(LONG_MS / 1000)
    assert sorted(found) == ["job-0", "job-1", "job-2", "job-3"]


def test_a_job_that_is_given_back_ends_a_wait(variant: Place) -> None:
    holder, waiting = variant.open(), variant.open()
    holder.put([job()])
    numbers = count()

    def measure() -> float:
        number = next(numbers)
        holder.claim("holder", f"nonce-{number}", Plan(), 1)
        with in_thread(wait_for_work, waiting, Plan(), f"worker-{number}") as returned:
            assert not returned.wait(0.05)
            holder.release("holder", f"nonce-{number}")
            started = time.monotonic()
            assert returned.wait(SOON_S)
            taken = time.monotonic() - started
        holder.close(f"worker-{number}", [], "ended")
        return taken

    assert fastest(measure) < AT_ONCE_S


def test_a_nudge_ends_a_wait(engine: Engine) -> None:
    def measure() -> float:
        with in_thread(engine.wait, Plan(), LONG_MS) as returned:
            assert not returned.wait(0.05)
            started = time.monotonic()
            engine.nudge()
            assert returned.wait(SOON_S)
            return time.monotonic() - started

    assert fastest(measure) < AT_ONCE_S


def test_a_nudge_before_the_wait_ends_it(engine: Engine) -> None:
    def measure() -> float:
        engine.nudge()
        return seconds_to_wait(engine, Plan())

    assert fastest(measure) < AT_ONCE_S


def test_due_jobs_are_found_in_time_and_never_early(engine: Engine) -> None:
    started = time.monotonic()
    engine.put([job(run_in_ms=300)])
    assert wait_for_work(engine, Plan()) == "job"
    assert 0.29 <= time.monotonic() - started < SOON_S


def test_a_retry_falls_due(engine: Engine) -> None:
    engine.put([job()])
    engine.claim("worker", "first", Plan(), 1)
    engine.finish([Retried(id="job", token="first", delay_ms=200, error=b"")])
    started = time.monotonic()
    assert wait_for_work(engine, Plan()) == "job"
    assert 0.15 <= time.monotonic() - started < SOON_S


def test_a_wait_does_not_spin_while_everybody_is_given_time_to_beat(engine: Engine) -> None:
    """After a silence of all, expired sessions are nothing to claim until the time is over."""
    engine.put([job()])
    engine.claim("silent", "nonce", Plan(), 1)
    engine.clock_offset_ms = 2 * OPTIONS.lease_ms
    engine.beat([Beat(session="other")])
    started = time.monotonic()
    for _ in range(3):  # the first may still be owed to the put
        engine.wait(Plan(), 100)
    assert time.monotonic() - started > 0.15


# ------------------------------------------------------------------------------ claims that wait


def await_claim(engine: Engine, nonce: str, session: str = "worker") -> str:
    """The id of the one job that a claim which waits gets; once it is made, another one waits."""
    numbers = count()
    asked = nonce
    for _ in range(100):
        batch = engine.await_claim(session, asked, Plan(), 1, LONG_MS)
        if batch is not None and batch.claims:
            return batch.claims[0].id
        if batch is not None:
            asked = f"{nonce}-{next(numbers):03}"
    raise AssertionError("nothing came")


def test_an_awaited_claim_gets_what_is_there(engine: Engine) -> None:
    engine.put([job()])
    assert await_claim(engine, "nonce") == "job"
    assert engine.finish([Succeeded(id="job", token="nonce", result=b"", result_ttl_ms=0)]) == [
        Verdict.OK
    ]


def test_an_awaited_claim_gets_what_another_puts(variant: Place) -> None:
    waiting, putting = variant.open(), variant.open()
    numbers = count()

    def measure() -> float:
        number = next(numbers)
        with in_thread(await_claim, waiting, f"nonce-{number}") as returned:
            assert not returned.wait(0.05)
            putting.put([job(f"job-{number}")])
            started = time.monotonic()
            assert returned.wait(SOON_S)
            return time.monotonic() - started

    assert fastest(measure) < AT_ONCE_S


def test_every_awaited_claim_gets_its_own_job(variant: Place) -> None:
    found: list[str] = []

    def work(number: int) -> None:
        found.append(await_claim(variant.open(), "nonce", f"worker-{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    variant.open().put([job(f"job-{number}") for number in range(4)])
    for thread in threads:
        thread.join(LONG_MS / 1000)
    assert sorted(found) == ["job-0", "job-1", "job-2", "job-3"]


def test_a_nudge_ends_an_awaited_claim(engine: Engine) -> None:
    def measure() -> float:
        with in_thread(engine.await_claim, "worker", "nonce", Plan(), 1, LONG_MS) as returned:
            assert not returned.wait(0.05)
            started = time.monotonic()
            engine.nudge()
            assert returned.wait(SOON_S)
            return time.monotonic() - started

    assert fastest(measure) < AT_ONCE_S


@pytest.mark.parametrize("is_early", [False, True])
def test_a_claim_that_was_awaited_is_made_once(variant: Place, is_early: bool) -> None:
    """It is given up and repeated under its nonce, before or after somebody put jobs."""
    waiting, putting = variant.open(), variant.open()
    batch = waiting.await_claim("worker", "nonce-1", Plan(), 1, 50)
    if is_early:
        batch = waiting.claim("worker", "nonce-1", Plan(), 1)
    putting.put([job("first"), job("second")])
    nonce = "nonce-2" if batch is not None else "nonce-1"
    claims = waiting.claim("worker", nonce, Plan(), 1).claims
    assert [claim.id for claim in claims] == ["first"]
    assert await_claim(waiting, "nonce-3") == "second"
    [pulse] = putting.beat([Beat(session="worker")])
    assert pulse.alive
    assert putting.check() == []


def test_a_claim_that_was_awaited_can_be_released(variant: Place) -> None:
    waiting, putting = variant.open(), variant.open()
    waiting.await_claim("worker", "nonce-1", Plan(), 1, 50)
    waiting.release("worker", "nonce-1")
    putting.put([job()])
    [claim] = putting.claim("other", "nonce", Plan(), 1).claims
    assert claim.id == "job"
    assert putting.check() == []
