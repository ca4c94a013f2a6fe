"""A thread that has no job waits in the pump's place: whatever meets it, no claim is forgotten."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, current_thread, get_ident
from typing import Any

import pytest

from tests.worker.rig import Rig
from tests.worker.yard import until
from windlass.core.states import State
from windlass.engine.contract import Batch
from windlass.worker import pump_watch
from windlass.worker.pump import Drained
from windlass.worker.pump_watch import PumpWatch


class Waiting(Rig):
    """Its engine claims before it answers, as Redis does, and a first job has started a thread."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, awaits=True)
        self.waits: list[str] = []  # in which threads
        self.start()
        self.run_one(0)
        until(lambda: "slot-1" in self.waits, "a thread that waits for the pump")

    def _wait_on(self, _real: Callable[[], Any], arguments: tuple[Any, ...]) -> Batch | None:
        session, nonce, plan, room, timeout_ms = arguments
        self.waits.append(current_thread().name)
        self.engine.wait(plan, timeout_ms)
        batch = self.engine.claim(session, nonce, plan, room)
        return batch if batch.claims else None

    def wait_anew(self) -> None:
        before = len(self.waits)
        self.engine.nudge()
        until(lambda: len(self.waits) > before, "another wait")

    def run_one(self, number: int) -> None:
        self.await_state(self.task.enqueue(number).id, State.SUCCEEDED)

    def on_confirm(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> Event:
        """Do something in that thread when it has heard of a job, which is not in line yet."""
        real, is_done = self.lease.confirm, Event()

        def confirm(sent_at: float) -> None:
            real(sent_at)
            if current_thread().name == "slot-1" and not is_done.is_set():
                is_done.set()
                act()

        monkeypatch.setattr(self.lease, "confirm", confirm)
        return is_done


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Waiting]:
    rig = Waiting(tmp_path)
    yield rig
    rig.close()


def interrupt(thread: int) -> None:
    """As the code of a job does that sends an exception to itself, which comes late."""
    error = ctypes.py_object(SystemExit)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def test_whoever_hears_of_a_job_runs_it(rig: Waiting) -> None:
    threads: list[str] = []

    def note(number: int) -> int:
        threads.append(current_thread().name)
        return number

    rig.app.tasks["note"].function = note
    for number in range(5):
        rig.run_one(number)
    assert set(threads) == {"slot-1"}


def test_an_exception_that_comes_late_while_it_waits(
    rig: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    slot = next(one for one in threading.enumerate() if one.name == "slot-1" and one.is_alive())
    assert slot.ident is not None
    interrupt(slot.ident)
    rig.engine.nudge()
    rig.run_one(1)
    rig.run_one(2)
    assert errors(caplog) == []


def test_an_exception_that_meets_it_before_the_job_is_in_line(
    rig: Waiting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_met = rig.on_confirm(monkeypatch, lambda: interrupt(get_ident()))
    rig.run_one(1)
    assert is_met.is_set()
    assert rig.starts == [0, 1]
    assert errors(caplog) == []


def test_an_exception_that_meets_it_when_the_job_is_in_line(
    rig: Waiting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    line = rig.pump._line
    real = line.offer

    def offer(claims: Any) -> None:
        real(claims)
        if current_thread().name == "slot-1":
            monkeypatch.setattr(line, "offer", real)
            interrupt(get_ident())

    monkeypatch.setattr(line, "offer", offer)
    rig.run_one(1)
    assert line.offer is real
    assert rig.starts == [0, 1]
    assert errors(caplog) == []


def test_an_exception_that_meets_it_while_the_job_gets_in_line(
    rig: Waiting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Interrupting(deque[Any]):
        is_met = False

        def append(self, entry: Any) -> None:
            super().append(entry)
            if current_thread().name == "slot-1" and not self.is_met:
                self.is_met = True
                interrupt(get_ident())

    line, waiting = rig.pump._line, Interrupting()
    monkeypatch.setattr(line, "_waiting", (waiting, deque()))
    rig.run_one(1)
    rig.run_one(2)
    assert waiting.is_met
    assert rig.starts == [0, 1, 2]
    assert errors(caplog) == []


def test_a_job_that_an_exception_takes_out_of_its_hands_is_tried_again(
    rig: Waiting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    line, is_met = rig.pump._line, Event()
    real = line.begin

    def begin(kind: Any, owner: int) -> Any:
        started = real(kind, owner)
        if started is not None and not is_met.is_set():
            is_met.set()
            interrupt(get_ident())
        return started

    monkeypatch.setattr(line, "begin", begin)
    rig.run_one(1)
    assert is_met.is_set()
    assert rig.starts == [0, 1]
    assert line.busy() == 0
    assert "failed beside its code" in errors(caplog)[0]


def test_what_is_said_meanwhile_finds_a_claim_that_has_not_started(
    rig: Waiting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stop() -> None:
        rig.pump.drain()
        rig.pump.hand_back()

    def leave() -> None:
        raise Drained  # as a worker inside a program does, which must not end the process

    monkeypatch.setattr(rig, "end_at_once", leave)
    real = rig.faulty.faults["await_claim"]

    def hear(_real: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        batch = real(_real, arguments)
        if batch is not None:
            stop()
        return batch

    rig.faulty.faults["await_claim"] = hear
    rig.wait_anew()
    job = rig.task.enqueue(1)
    rig.thread.join(10)
    assert not rig.thread.is_alive()
    assert rig.record(job.id).state is State.READY
    assert rig.starts == [0]
    assert errors(caplog) == []
    rig.table.nonces.clear_all()  # a process would have ended


def test_a_job_that_ends_at_once_leaves_no_nudge_behind(rig: Waiting) -> None:
    nudges = rig.faulty.calls.count("nudge")
    for number in range(20):
        rig.run_one(number)
    assert rig.faulty.calls.count("nudge") == nudges


def test_the_watch_sees_that_it_is_inside_the_engine(
    rig: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_there, may_go = Event(), Event()
    text = "def call(is_there, may_go):\n    is_there.set()\n    may_go.wait(20)\n"
    made: dict[str, Any] = {}
    exec(compile(text, f"{pump_watch._ENGINES}/away.py", "exec"), made)  # noqa: S102  # a frame of an engine
    rig.faulty.faults["await_claim"] = lambda *_: made["call"](is_there, may_go)
    rig.engine.nudge()
    assert is_there.wait(10)
    watch = PumpWatch(rig.thread, rig.pump)
    told = [watch.look(50.0, is_punctual=True) for _ in range(4)]
    may_go.set()
    assert told == [None] * 4


def test_news_that_comes_before_the_next_wait_finds_nothing_heard(
    rig: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nobody waits, and what was heard the last time is no answer to the next claim."""
    inbox, awaiting, is_met = rig.pump._inbox, rig.pump._awaiting, Event()
    real = inbox.hear

    def hear(wake: Callable[[], None], wait: Callable[[], Any]) -> Any:
        if awaiting and not is_met.is_set():
            is_met.set()
            inbox.commands.append(lambda: None)
        return real(wake, wait)

    monkeypatch.setattr(inbox, "hear", hear)
    rig.run_one(1)
    assert is_met.wait(10)
    rig.wait_anew()
    assert len(rig.table.nonces.read()) <= 1  # that of the claim which waits
    rig.run_one(2)
    assert rig.starts == [0, 1, 2]
