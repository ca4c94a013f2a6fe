"""An engine fails as it is told to, and what code does about it can be tested."""

from __future__ import annotations

import asyncio
import time

import pytest

from windlass import EngineUnavailable, Windlass
from windlass.engine.contract import Engine, EngineOptions, Filter
from windlass.engine.url import open_engine
from windlass.testing import Faults, Sandbox
from windlass.testing.faults import VERBS


def charge(order: int) -> None:
    """A task whose code does not matter."""


def test_refused_calls_store_nothing(app: Windlass, box: Sandbox) -> None:
    task = app.task(name="charge")(charge)
    box.faults.refuse(times=2)
    for _ in range(2):
        with pytest.raises(EngineUnavailable, match="did not answer to put"):
            task.enqueue(1)
    assert box.jobs() == []
    assert box.faults.pending == 0
    task.enqueue(1)
    assert len(box.jobs()) == 1


def test_a_lost_reply_is_made_up_for_by_an_idempotency_key(app: Windlass, box: Sandbox) -> None:
    task = app.task(name="charge")(charge).using(idempotency_key="order-1")
    box.faults.lose_reply()
    with pytest.raises(EngineUnavailable):
        task.enqueue(1)
    again = task.enqueue(1)
    assert not again.created
    assert [job.id for job in box.jobs()] == [again.id]


def test_without_a_key_the_call_is_there_twice(app: Windlass, box: Sandbox) -> None:
    task = app.task(name="charge")(charge)
    box.faults.lose_reply()
    with pytest.raises(EngineUnavailable):
        task.enqueue(1)
    task.enqueue(1)
    assert len(box.drain()) == 2


def test_coroutines_meet_them_too(app: Windlass, box: Sandbox) -> None:
    task = app.task(name="charge")(charge)
    box.faults.refuse()
    with pytest.raises(EngineUnavailable):
        asyncio.run(task.aenqueue(1))
    assert box.jobs() == []


def test_a_slow_engine(app: Windlass, box: Sandbox) -> None:
    task = app.task(name="charge")(charge)
    box.faults.delay("30ms")
    before = time.monotonic()
    task.enqueue(1)
    assert time.monotonic() - before >= 0.03


def test_what_is_cleared_does_not_happen(app: Windlass, box: Sandbox) -> None:
    box.faults.refuse()
    box.faults.clear()
    app.task(name="charge")(charge).enqueue(1)


def test_the_sandbox_goes_past_them(app: Windlass, box: Sandbox) -> None:
    task = app.task(name="charge")(charge)
    task.enqueue(1)
    for verb in ("turn", "finish", "get", "find"):
        box.faults.refuse(verb)
    assert len(box.drain().succeeded) == 1
    assert box.faults.pending == 4


def test_only_verbs_can_fail() -> None:
    faults = Faults(open_engine("sqlite:///:memory:", EngineOptions()))
    with pytest.raises(ValueError, match="an enqueue is put"):
        faults.refuse("enqueue")
    with pytest.raises(ValueError, match="times"):
        faults.refuse(times=0)


def test_all_else_is_the_engine_itself() -> None:
    engine = open_engine("sqlite:///:memory:", EngineOptions())
    faulty: Engine = Faults(engine).engine
    assert {"put", "finish", "turn", "beat", "shutdown"} <= VERBS
    assert faulty.location == engine.location
    assert faulty.capabilities == engine.capabilities
    assert faulty.find(Filter()).records == ()
    faulty.clock_offset_ms += 86_400_000
    assert engine.clock_offset_ms == 86_400_000
    faulty.shutdown()
