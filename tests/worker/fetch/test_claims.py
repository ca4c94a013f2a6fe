"""A worker claims only jobs that can start, in order, and holds back no others."""

from __future__ import annotations

import time

import pytest

from tests.worker.yard import Yard, until
from windlass.core.states import State
from windlass.engine.contract import Capability

in_strict_order = pytest.mark.needs(Capability.STRICT_ORDER)


@in_strict_order
def test_jobs_start_by_priority_and_then_in_order(yard: Yard) -> None:
    for label, priority in [("low", -5), ("a", 0), ("b", 0), ("high", 7), ("c", 0)]:
        yard.script.plain.using(priority=priority).enqueue(label, [])
    yard.start(slots=1)
    yard.await_count(State.SUCCEEDED, 5)
    assert [line.label for line in yard.events("start")] == ["high", "a", "b", "c", "low"]


@in_strict_order
def test_queues_are_served_in_strict_order_and_others_not_at_all(yard: Yard) -> None:
    for queue in ("other", "second", "first"):
        yard.script.plain.using(queue=queue).enqueue(queue, [])
    yard.start(slots=1, queues=["first", "second"])
    yard.await_count(State.SUCCEEDED, 2)
    assert [line.label for line in yard.events("start")] == ["first", "second"]
    assert yard.count(State.READY) == 1


def test_no_more_is_claimed_than_can_start(yard: Yard) -> None:
    gate = yard.folder / "gate"
    for number in range(10):
        yard.plain(f"p{number}", f"await:{gate}")
        yard.coroutine(f"c{number}", "sleep:60")
    yard.start(slots=4)
    yard.await_count(State.RUNNING, 4)
    until(lambda: len(yard.events("start")) == 4, "four starts")
    assert yard.count(State.READY) == 16


@pytest.mark.local
def test_a_slow_job_does_not_imprison_short_ones(yard: Yard) -> None:
    gate = yard.folder / "gate"
    slow = yard.plain("slow", f"await:{gate}")
    yard.start(slots=2)
    yard.await_start("slow")
    began_at = time.monotonic()
    yard.script.plain.enqueue_many([(f"short{n}", []) for n in range(100)])
    yard.await_count(State.SUCCEEDED, 100)
    assert time.monotonic() - began_at < 5
    gate.touch()
    assert slow.result(timeout=20) == "slow done"


@pytest.mark.local
def test_what_was_claimed_ahead_is_handed_back_when_slow_jobs_come(yard: Yard) -> None:
    yard.script.nothing.enqueue_many([() for _ in range(500)])
    yard.start(slots=2)
    yard.await_count(State.SUCCEEDED, 500)
    # After many short jobs the worker prefetches; these two jobs take all its slots.
    gate = yard.folder / "gate"
    slow = [yard.script.plain.bind(f"slow{n}", [f"await:{gate}"]) for n in range(2)]
    short = [yard.script.plain.bind(f"short{n}", []) for n in range(50)]
    jobs = yard.script.plain.enqueue_many(slow + short)
    yard.await_start("slow1")
    yard.await_count(State.READY, 50, seconds=4)  # after 5 s it would be late
    yard.start(slots=2)
    yard.await_count(State.SUCCEEDED, 550)
    gate.touch()
    yard.await_count(State.SUCCEEDED, 552)
    for job in jobs:
        counters = yard.record(job).counters
        assert (counters.attempt, counters.starts, counters.interruptions) == (1, 1, 0)


@pytest.mark.local
@in_strict_order
def test_a_coroutine_that_blocks_the_loop_does_not_imprison_others(yard: Yard) -> None:
    gate = yard.folder / "gate"
    yard.coroutine("blocker", f"await:{gate}")
    for number in range(3):
        yard.coroutine(f"behind{number}", "sleep:0.01")
    yard.start(slots=4)
    yard.await_start("blocker")
    yard.start(slots=4)
    until(lambda: len(yard.events("end")) == 3, "the others to end")
    assert yard.events("end", "blocker") == []
    gate.touch()
    yard.await_count(State.SUCCEEDED, 4)
    assert len(yard.events("start")) == 4


@pytest.mark.local
def test_coroutines_run_side_by_side_and_no_more_than_there_are_slots(yard: Yard) -> None:
    began_at = time.monotonic()
    for number in range(6):
        yard.coroutine(f"c{number}", "sleep:0.4")
    yard.start(slots=3)
    yard.await_count(State.SUCCEEDED, 6)
    lines = [line.split()[0] for line in yard.lines()]
    assert lines[:3] == ["start"] * 3
    assert "end" in lines[3:5]
    assert time.monotonic() - began_at > 0.8
