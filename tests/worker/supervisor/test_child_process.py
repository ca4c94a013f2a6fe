"""Jobs of tasks with `run_in="process"`."""

from __future__ import annotations

import os
import signal

import pytest

from tests.worker.conftest import MakeYard
from tests.worker.yard import Yard, until
from windlass.core.retry import Retry
from windlass.core.states import Reason, State


@pytest.mark.local
def test_they_run_alone_and_the_others_as_ever(yard: Yard) -> None:
    gate = yard.folder / "gate"
    worker = yard.start(slots=4, processes=1)
    shared = yard.plain("shared", f"await:{gate}")
    alone = [yard.process(f"alone{number}", "sleep:0.05") for number in range(5)]
    for number, job in enumerate(alone):
        assert job.result(timeout=20) == f"alone{number} done"
        counters = yard.record(job).counters
        assert (counters.attempt, counters.starts, counters.interruptions) == (1, 1, 0)
    gate.touch()
    shared.result(timeout=20)
    ordinary = yard.await_start("shared").pid
    starts = yard.events("start")
    pids = {line.pid for line in starts if line.label != "shared"}
    assert len(pids) == 1  # one process of the worker, which was kept
    assert ordinary not in pids
    # One at a time: each had ended before the next began.
    order = [line for line in yard.lines() if "alone" in line]
    assert [line.split()[0] for line in order] == ["start", "end"] * 5
    assert worker.process.poll() is None


@pytest.mark.local
def test_coroutines_may_too(yard: Yard) -> None:
    yard.start()
    job = yard.script.process_coroutine.enqueue("alone", ["sleep:0.01"])
    assert job.result(timeout=20) == "alone done"


@pytest.mark.local
def test_there_are_as_many_as_there_are_processes(yard: Yard) -> None:
    gate = yard.folder / "gate"
    yard.start(processes=2, slots=1)
    jobs = [yard.process(f"alone{number}", f"await:{gate}") for number in range(3)]
    until(lambda: len(yard.events("start")) == 2, "two of them at a time")
    assert len({line.pid for line in yard.events("start")}) == 2
    # Waiting jobs do not block other jobs.
    assert yard.plain("ordinary").result(timeout=20) == "ordinary done"
    assert len(yard.events("start")) == 3
    gate.touch()
    for job in jobs:
        job.result(timeout=20)


@pytest.mark.local
def test_a_failed_attempt_is_followed_by_one_that_runs_alone_too(yard: Yard) -> None:
    yard.start()
    job = yard.process("alone", "fail_before:2")
    assert job.result(timeout=20) == "alone done"
    assert len({line.pid for line in yard.events("start")}) == 1
    assert yard.record(job).counters.starts == 2


@pytest.mark.local
def test_one_that_kills_its_process_harms_nobody(make_yard: MakeYard) -> None:
    yard = make_yard(max_crashes=2)
    gate = yard.folder / "gate"
    neighbour = yard.plain("neighbour", f"await:{gate}")
    yard.start(slots=2)
    yard.await_start("neighbour")
    poison = yard.process("poison", "die")
    record = yard.await_state(poison, State.DEAD)
    assert (record.reason, record.counters.crashes) == (Reason.CRASHED, 2)
    gate.touch()
    assert neighbour.result(timeout=20) == "neighbour done"
    assert yard.record(neighbour).counters.starts == 1


@pytest.mark.local
@pytest.mark.parametrize("step", ["sleep:60", "hold:60", "swallow", "nap"])
def test_one_past_its_timeout_is_interrupted_or_killed_alone(
    make_yard: MakeYard, step: str
) -> None:
    yard = make_yard(kill_after="200ms")
    gate = yard.folder / "gate"
    neighbour = yard.plain("neighbour", f"await:{gate}")
    worker = yard.start(slots=2)
    yard.await_start("neighbour")
    shared = worker.children()
    using = yard.script.process.using(timeout="200ms", retry=Retry(1))
    record = yard.await_state(using.enqueue("stuck", [step]), State.DEAD)
    assert (record.reason, record.counters.crashes) == (Reason.TIMED_OUT, 0)
    assert (", ending child" in worker.log()) == (step != "nap")
    gate.touch()
    assert neighbour.result(timeout=20) == "neighbour done"
    assert yard.process("after").result(timeout=20) == "after done"
    assert set(shared) <= set(worker.children())


@pytest.mark.local
def test_a_stop_waits_for_them_and_hands_back_the_rest(make_yard: MakeYard) -> None:
    yard = make_yard(grace="1s")
    quick, slow = yard.process("quick", "sleep:0.3"), yard.process("slow", "sleep:60")
    worker = yard.start(processes=2)
    yard.await_start("quick")
    yard.await_start("slow")
    assert worker.stop() == 0
    assert yard.record(quick).state is State.SUCCEEDED
    record = yard.record(slow)
    assert (record.state, record.counters.attempt) == (State.READY, 0)
    assert record.counters.interruptions == 1


@pytest.mark.local
def test_a_worker_that_dies_leaves_none_behind(make_yard: MakeYard) -> None:
    yard = make_yard(lease="1s")
    job = yard.process("alone", "sleep:60")
    worker = yard.start()
    alone = yard.await_start("alone").pid
    os.kill(worker.pid, signal.SIGKILL)
    yard.start()
    assert yard.await_start("alone", 2).pid != alone
    assert yard.record(job).counters.losses == 1
