"""The workers that the command line shows, on every engine."""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

import msgspec
import pytest

from tests.worker.conftest import MakeYard
from tests.worker.yard import Yard, until
from windlass.cli.root import exit_code_of
from windlass.core.states import State
from windlass.fleet import WorkerInfo, read_fleet


def fleet_of(yard: Yard) -> list[WorkerInfo]:
    return read_fleet(yard.app.engine)


@pytest.mark.local
def test_a_worker_is_shown_from_its_start_to_its_end(yard: Yard) -> None:
    worker = yard.start(processes=2, slots=3, queues=["default", "mail"])
    until(lambda: fleet_of(yard) and len(fleet_of(yard)[0].children) == 2, "both children")
    [seen] = fleet_of(yard)
    assert (seen.host, seen.pid) == (socket.gethostname(), worker.pid)
    assert (seen.slots, seen.queues, seen.app) == (
        6,
        ("default", "mail"),
        "tests.worker.apps.scripted:app",
    )
    assert {child.pid for child in seen.children} == set(worker.children())

    trap = yard.folder / "gate"
    job = yard.plain("long", f"await:{trap}")
    started = yard.await_start("long")
    [running] = [
        (child.pid, one.id, one.task)
        for child in fleet_of(yard)[0].children
        for one in child.running
    ]
    assert running == (started.pid, job.id, "plain")
    assert [view.jobs for view in fleet_of(yard)] == [1]

    trap.touch()
    yard.await_state(job, State.SUCCEEDED)
    worker.stop()
    assert fleet_of(yard) == []


@pytest.mark.local
def test_the_dead_vanish(make_yard: MakeYard) -> None:
    yard = make_yard(lease="1s")
    killed = yard.start()
    until(lambda: fleet_of(yard), "the worker to be known")
    os.killpg(killed.pid, signal.SIGKILL)
    other = yard.start()
    until(lambda: [view.pid for view in fleet_of(yard)] == [other.pid], "only the living one")


@pytest.mark.local
def test_the_child_that_died_is_replaced_in_the_list(yard: Yard) -> None:
    worker = yard.start()
    until(lambda: fleet_of(yard), "the worker to be known")
    [old], [before] = worker.children(), fleet_of(yard)
    os.kill(old, signal.SIGKILL)
    until(lambda: worker.children() not in ([], [old]), "another child")
    until(
        lambda: [c.pid for view in fleet_of(yard) for c in view.children] == worker.children(), "it"
    )
    assert [view.started_at for view in fleet_of(yard)] == [before.started_at]


@pytest.mark.local
def test_commands_show_them(yard: Yard, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    worker = yard.start(slots=3)
    trap = yard.folder / "gate"
    job = yard.plain("long", f"await:{trap}")
    yard.await_start("long")
    until(lambda: fleet_of(yard) and fleet_of(yard)[0].app, "the introduction")

    def printed(*arguments: str) -> str:
        assert exit_code_of([*arguments, "--url", url]) == 0
        return capsys.readouterr().out

    host = socket.gethostname()
    assert [host, str(worker.pid)] in [line.split()[:2] for line in printed("workers").splitlines()]
    [view] = msgspec.json.decode(printed("workers", "--json"), type=list[Any])
    assert view["children"][0]["running"][0]["id"] == job.id
    snapshot: Any = msgspec.json.decode(printed("top", "--json", "--interval", "100ms"))
    assert snapshot["stats"]["queues"] == {"default": {"running": 1}}
    assert snapshot["workers"][0]["pid"] == worker.pid
    assert snapshot["rates"]["enqueued"] == 0
    text = printed("top", "--once", "--interval", "100ms")
    for word in (f"{host} {worker.pid}", job.id, "enqueued 0/s", "plain"):
        assert word in text
    trap.touch()
