"""The history after real workers have run jobs: exact, or short by what a killed process had not
sent, and never too large."""

from __future__ import annotations

import os
import signal

import pytest

from tests.worker.conftest import MakeYard
from tests.worker.recount import Ends, recorded, recount, times, total_counts
from tests.worker.yard import Worker, Yard, until
from windlass.core.history import Summary
from windlass.core.retry import Retry
from windlass.core.states import State


def all_ended(yard: Yard, number: int) -> bool:
    return yard.count(State.SUCCEEDED) + yard.count(State.DEAD) == number


def enqueue(yard: Yard, numbers: range) -> None:
    """Enqueue jobs of two tasks in two queues that end in all ways."""
    steps = [[], [], ["fail_before:3"], ["fail"], ["reject"], ["snooze_once"]]
    for number in numbers:
        task = yard.script.plain if number % 2 else yard.script.coroutine
        queue = "mail" if number % 3 else "default"
        todo = [
            f"{step}:{yard.folder}/{number}" if step == "snooze_once" else step
            for step in steps[number % len(steps)]
        ]
        task.using(queue=queue).enqueue(f"job-{number}", todo)


def check(yard: Yard) -> None:
    expected = recount(yard.app.engine)
    assert recorded(yard.app.engine) == expected
    assert {ends.outcome for ends in expected} == {"succeeded", "retried", "dead", "snoozed"}
    assert times(yard.app.engine) == (expected.total(), expected.total())


def test_the_history_is_a_recount(yard: Yard) -> None:
    enqueue(yard, range(60))
    worker = yard.start(processes=2)
    until(lambda: all_ended(yard, 60), "the end of all jobs")
    assert worker.stop() == 0
    check(yard)


@pytest.mark.slow
def test_children_that_are_replaced_take_nothing_with_them(yard: Yard) -> None:
    worker = yard.start(max_jobs=1)
    for part in range(3):
        run_in_one_child(yard, worker, range(20 * part, 20 * part + 20))
    assert worker.stop() == 0
    assert len({line.pid for line in yard.events("start")}) >= 3
    check(yard)


def run_in_one_child(yard: Yard, worker: Worker, numbers: range) -> None:
    """Run jobs, and wait until their child was replaced."""
    until(lambda: len(worker.children()) == 1, "one child")
    [child] = worker.children()
    enqueue(yard, numbers)
    until(lambda: all_ended(yard, numbers.stop), "the end of these jobs")
    until(lambda: child not in worker.children(), "its replacement")


@pytest.mark.local
def test_a_killed_child_takes_only_what_it_has_not_sent(yard: Yard) -> None:
    worker = yard.start(slots=2)
    before = [yard.plain(f"before-{number}") for number in range(5)]
    for job in before:
        yard.await_state(job, State.SUCCEEDED)
    [child] = worker.children()
    os.kill(child, signal.SIGKILL)
    for number in range(4):
        yard.plain(f"after-{number}", "fail_before:2")
    until(lambda: all_ended(yard, 9), "the end of all jobs")
    assert worker.stop() == 0
    expected, found = recount(yard.app.engine), recorded(yard.app.engine)
    assert found <= expected
    assert (expected - found).total() <= 5
    assert found[Ends("default", "plain", "retried")] == 4


@pytest.mark.slow
def test_a_run_that_was_ended_by_force_counts(make_yard: MakeYard) -> None:
    yard = make_yard(kill_after="100ms")
    stuck = yard.script.process.using(timeout="200ms", retry=Retry(1)).enqueue("x", ["swallow"])
    worker = yard.start()
    yard.await_state(stuck, State.DEAD)
    assert worker.stop() == 0
    assert recorded(yard.app.engine) == {Ends("default", "process", "dead"): 1}
    assert times(yard.app.engine) == (0, 1)
    mean_run_s = Summary(total_counts(yard.app.engine)).mean_run_s
    assert mean_run_s is not None
    assert 0.3 <= mean_run_s < 20


@pytest.mark.slow
def test_runs_that_a_stopping_worker_hands_back_count_as_released(make_yard: MakeYard) -> None:
    yard = make_yard(grace="100ms")
    job = yard.plain("long", "sleep:60")
    worker = yard.start()
    yard.await_start("long")
    assert worker.stop() == 0
    assert yard.record(job).state is State.READY
    assert Summary(total_counts(yard.app.engine)).outcomes["released"] == 1
