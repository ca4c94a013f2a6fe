"""Exceptions that a task sends to its own thread, and that arrive after its end."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Event, get_ident
from typing import Any

import pytest

from tests.worker.fetch.rig import Rig
from windlass.core.states import State


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A first job has started a thread."""
    rig = Rig(tmp_path, is_handed_jobs=False)
    rig.start()
    run_one(rig, 0)
    yield rig
    rig.close()


def run_one(rig: Rig, number: int) -> None:
    rig.await_state(rig.task.enqueue(number).id, State.SUCCEEDED)


def interrupt(thread: int) -> None:
    """As the code of a job does that sends an exception to itself, which comes late."""
    error = ctypes.py_object(SystemExit)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def test_an_exception_that_comes_late_while_it_waits(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    slot = next(one for one in threading.enumerate() if one.name == "slot-1" and one.is_alive())
    assert slot.ident is not None
    interrupt(slot.ident)
    run_one(rig, 1)
    run_one(rig, 2)
    assert errors(caplog) == []


def test_a_job_that_an_exception_takes_out_of_its_hands_is_tried_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slot_queue, is_met = rig.fetcher._slot_queue, Event()
    real = slot_queue.begin

    def begin(kind: Any, owner: int) -> Any:
        started = real(kind, owner)
        if started is not None and not is_met.is_set():
            is_met.set()
            interrupt(get_ident())
        return started

    monkeypatch.setattr(slot_queue, "begin", begin)
    run_one(rig, 1)
    assert is_met.is_set()
    assert rig.starts == [0, 1]
    assert slot_queue.busy() == 0
    assert "failed outside the task function" in errors(caplog)[0]
