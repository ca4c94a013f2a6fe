"""The lifespan of an app in the children of real workers. It does not depend on the engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.apps.lived import KIND, TROUBLE
from tests.worker.yard import Worker, Yard, until
from windlass import Job


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    yard = Yard(tmp_path, lease="30s", grace="10s", max_crashes=3)
    yield yard
    yard.close()


def start(yard: Yard, kind: str, trouble: str = "", processes: int = 1) -> Worker:
    return yard.start(
        app="tests.worker.apps.lived:app",
        processes=processes,
        environment={KIND: kind, TROUBLE: trouble},
    )


def enqueue(yard: Yard, name: str) -> Job[str]:
    """The tasks of the app of the worker are not those of the yard."""
    task = yard.app.tasks.get(name) or yard.app.task(name=name)(_stand_in)
    return task.enqueue()


def _stand_in() -> str:
    raise AssertionError("runs in a worker only")


@pytest.mark.parametrize("kind", ["plain", "coroutine", "manager"])
def test_its_value_is_the_state_of_every_job(yard: Yard, kind: str) -> None:
    jobs = [enqueue(yard, "tell"), enqueue(yard, "atell")]
    worker = start(yard, kind)
    [pid] = {job.result(timeout=20).removeprefix("state of ") for job in jobs}
    assert worker.stop() == 0
    expected = [f"entered {pid} True", f"ran {pid}", f"ran {pid}", f"left {pid} True"]
    assert yard.lines() == expected, "once, around all jobs, in the main thread"


def test_every_child_has_its_own(yard: Yard) -> None:
    worker = start(yard, "plain", processes=2)
    until(lambda: len(yard.app.engine.sessions()) == 2, "both children to enter")
    assert worker.stop() == 0
    entered, left = ({line.split()[1] for line in yard.lines() if w in line} for w in ("en", "le"))
    assert len(entered) == 2
    assert left == entered


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_an_error_at_the_beginning_ends_the_worker(yard: Yard, kind: str) -> None:
    job = enqueue(yard, "tell")
    worker = start(yard, kind, "enter")
    assert worker.wait() == 2
    assert "no database at" in worker.log()
    assert f"Raised by the lifespan tests.worker.apps.lived.{kind} of the app" in worker.log()
    assert job.info().attempts == 0


def test_a_burst_does_not_wait_for_a_child_that_cannot_enter(yard: Yard) -> None:
    job = enqueue(yard, "tell")
    worker = yard.start(
        app="tests.worker.apps.lived:app",
        processes=2,
        burst=True,
        environment={KIND: "plain", TROUBLE: "one only"},
    )
    assert worker.wait() == 0
    assert job.result(timeout=1)


def test_one_that_hangs_is_told_of_and_can_be_stopped(yard: Yard) -> None:
    worker = start(yard, "plain", "hang")
    worker.await_log("lifespan has not started within 0.2 s, still waiting")
    assert worker.stop() == 0


def test_an_error_at_the_end_is_told(yard: Yard) -> None:
    job = enqueue(yard, "tell")
    worker = start(yard, "coroutine", "leave")
    job.result(timeout=20)
    assert worker.stop() == 0
    assert "lifespan failed at shutdown" in worker.log()
    assert "cannot close" in worker.log()


@pytest.mark.slow
def test_one_that_does_not_end_is_cut_off(yard: Yard) -> None:
    job = enqueue(yard, "tell")
    worker = start(yard, "plain", "linger")
    job.result(timeout=20)
    assert worker.stop() == 0
    assert "lifespan has not ended within 5 s" in worker.log()


def test_one_that_ends_by_itself_ends_its_child(yard: Yard) -> None:
    worker = start(yard, "coroutine", "collapse")
    worker.await_log("lifespan ended unexpectedly")
    until(lambda: len([line for line in yard.lines() if "entered" in line]) >= 2, "a new child")
    assert "the connection is gone" in worker.log()


def test_a_stop_does_not_cut_off_a_child_that_takes_leave(yard: Yard) -> None:
    """A child that has ended its last job gets a second `Drain`, with the others."""
    worker = yard.start(
        app="tests.worker.apps.lived:app",
        max_jobs=1,
        environment={KIND: "plain", TROUBLE: "leave slowly"},
    )
    enqueue(yard, "tell").result(timeout=20)
    until(lambda: any("leaving" in line for line in yard.lines()), "the first child to take leave")
    assert worker.stop() == 0
    entered, left = (sum(line.startswith(w) for line in yard.lines()) for w in ("entered", "left"))
    assert entered == left
