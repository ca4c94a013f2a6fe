"""Errands: done once, by whoever was sent or by whoever waits, and then the line is served."""

from __future__ import annotations

from functools import partial
from queue import Empty, SimpleQueue
from threading import Barrier, Event, Thread, current_thread
from time import monotonic
from typing import Any, NoReturn

import pytest

from tests.worker.test_runners import claim_of, table, unlimited
from windlass.app import Windlass
from windlass.engine.contract import Outcome
from windlass.task import Task
from windlass.worker.errands import Errand, Failed
from windlass.worker.execution import Execution
from windlass.worker.lease import Lease
from windlass.worker.line import Line
from windlass.worker.pace import Pace
from windlass.worker.runners import ThreadRunner

ran_in: SimpleQueue[str] = SimpleQueue()


meeting = Barrier(2)


def note(name: str) -> None:
    if name.startswith("meet"):
        meeting.wait(10)
    ran_in.put(current_thread().name)


def test_its_result_is_waited_for() -> None:
    errand = Errand(lambda: current_thread().name)
    Thread(target=errand.run, name="sent").start()
    assert errand.has_ended()
    assert errand.result() == "sent"


def test_one_that_takes_long_is_waited_for() -> None:
    begun, may_end = Event(), Event()

    def action() -> str:
        begun.set()
        assert may_end.wait(10)
        return current_thread().name

    errand, ends = Errand(action), SimpleQueue[bool]()
    Thread(target=errand.run, name="sent").start()
    assert begun.wait(10)
    Thread(target=lambda: ends.put(errand.has_ended())).start()
    with pytest.raises(Empty):
        ends.get(timeout=0.3)
    may_end.set()
    assert ends.get(timeout=10)
    assert errand.result() == "sent"


def test_one_that_nobody_begins_is_done_by_nobody_later() -> None:
    done: list[str] = []
    errand = Errand(lambda: done.append(current_thread().name))
    assert not errand.has_ended()
    errand.run()
    assert done == []


def leave() -> NoReturn:
    raise SystemExit(3)


def test_what_ends_it_is_an_error_for_whoever_waits() -> None:
    errand = Errand(leave)
    Thread(target=errand.run).start()
    assert errand.has_ended()
    with pytest.raises(Failed) as caught:
        errand.result()
    assert isinstance(caught.value.__cause__, SystemExit)


class Rig:
    """A line with threads for jobs, the first of which was started by a job."""

    def __init__(self) -> None:
        app = Windlass("sqlite:///:memory:")
        self.task: Task[..., Any] = app.task(name="note")(note)
        lease = Lease(table, 30_000)
        lease.confirm(monotonic())
        self.line = Line(2, lease)
        self.outcomes: SimpleQueue[Outcome] = SimpleQueue()
        execution = Execution(app.settings, lambda claim, progress: None, lambda task: None)
        ThreadRunner(self.line, table, unlimited(), execution, Pace(), self.outcomes.put)

    def offer(self, *names: str) -> str:
        self.line.offer([(claim_of(self.task, name), self.task) for name in names])
        return current_thread().name

    def thread_of_next(self) -> str:
        self.outcomes.get(timeout=10)
        return ran_in.get(timeout=10)


def test_whoever_was_sent_runs_what_was_offered_meanwhile() -> None:
    rig = Rig()
    assert rig.line.have_done(lambda: current_thread().name) == current_thread().name
    rig.offer("first")
    assert rig.thread_of_next() == "slot-1"
    for name in ("second", "third"):
        assert rig.line.have_done(partial(rig.offer, name)) == "slot-1"
        assert rig.thread_of_next() == "slot-1"


def test_others_come_for_what_whoever_was_sent_cannot_run() -> None:
    rig = Rig()
    rig.offer("first")
    rig.thread_of_next()
    rig.line.have_done(lambda: rig.offer("meet-1", "meet-2"))
    assert {rig.thread_of_next() for _ in range(2)} == {"slot-1", "slot-2"}


def test_an_errand_that_fails_costs_no_thread() -> None:
    rig = Rig()
    rig.offer("first")
    rig.thread_of_next()
    with pytest.raises(Failed):
        rig.line.have_done(leave)
    assert rig.line.have_done(lambda: rig.offer("second")) == "slot-1"
    assert rig.thread_of_next() == "slot-1"


def test_without_anybody_who_comes_it_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.offer("first")
    rig.thread_of_next()
    monkeypatch.setattr(rig.line, "_send", lambda errand: True)
    assert rig.line.have_done(partial(rig.offer, "second")) == current_thread().name
    assert rig.thread_of_next() == "slot-1"
