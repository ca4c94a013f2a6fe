"""`windlass health`: by real workers, each test in a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import windlass_probe
from tests.cli.forks import SCRIPT
from tests.engine.conftest import hold_the_lock
from tests.worker.yard import Worker, Yard, until
from windlass.worker.supervisor.health_socket import (
    READY_S,
    ChildStatus,
    WorkerStatus,
    answer_probes,
    judge,
)
from windlass.worker.supervisor.reactor import Reactor


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    """What a worker asks of the engine does not depend on which one it is."""
    yard = Yard(tmp_path, lease="30s", grace="10s", max_crashes=3)
    yield yard
    yard.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not among the folders of the tests, whose names are too long for a socket."""
    with TemporaryDirectory(prefix="windlass-") as short:
        yield Path(short) / "run"


def start(yard: Yard, folder: Path, **options: Any) -> Worker:
    return yard.start(environment={windlass_probe.VARIABLE: str(folder)}, **options)


def ask(folder: Path, *options: str, **environment: str) -> tuple[int, str]:
    ran = subprocess.run(
        [SCRIPT, "health", *options],
        env={**os.environ, windlass_probe.VARIABLE: str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def test_a_worker_is_ready_until_it_ends(yard: Yard, folder: Path) -> None:
    assert ask(folder) == (1, f"No worker of this user was found in {folder}.\n")
    worker = start(yard, folder)
    until(lambda: ask(folder)[0] == 0, "readiness")
    app, engine = "tests.worker.apps.scripted:app", yard.app.engine.location
    assert ask(folder) == (0, f"worker {worker.pid} ({app}, {engine}): ready\n")
    assert ask(folder, WINDLASS_APP="tests.worker.apps.scripted:app")[0] == 0
    missing = f"No worker of the app other:app was found in {folder}. There are workers of "
    told = (1, f"{missing}tests.worker.apps.scripted:app.\n")
    assert ask(folder, WINDLASS_APP="other:app") == ask(folder, "--app", "other:app") == told
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]
    worker.stop()
    assert list(folder.iterdir()) == []


@pytest.mark.local
def test_it_says_that_it_is_ready_when_the_engine_has_answered(yard: Yard, folder: Path) -> None:
    yard.app.engine.migrate()
    with hold_the_lock(yard.folder / "jobs.db"):
        worker = start(yard, folder)
        worker.await_log("waiting for the engine to answer: ")
        assert " ready: " not in worker.log()
    worker.await_log(" ready: sqlite ")
    assert "reached the engine again" not in worker.log()


def test_all_workers_have_to_be_ready(yard: Yard, folder: Path) -> None:
    workers = [start(yard, folder, slots=1), start(yard, folder, slots=1)]
    until(lambda: ask(folder)[1].count(": ready") == 2, "both")
    trap = yard.folder / "gate"
    yard.plain("a", f"await:{trap}"), yard.plain("b", f"await:{trap}")
    yard.await_start("a"), yard.await_start("b")
    workers[0].signal(signal.SIGTERM)
    workers[0].await_log("stopping on SIGTERM")
    code, text = ask(folder, "--json")
    assert code == 1
    told = {one["pid"]: one for one in json.loads(text)["workers"]}
    assert told[workers[0].pid]["why"] == "it is stopping"
    assert told[workers[1].pid]["ready"] is True
    assert [child["jobs"] for child in told[workers[1].pid]["children"]] == [1]
    assert ask(folder, "--live")[0] == 0
    assert ask(folder, "--app", "tests.worker.apps.scripted:app")[0] == 1
    assert ask(folder, "--app", "other:app")[0] == 1
    trap.touch()


def test_one_that_loads_lives_but_is_not_ready(yard: Yard, folder: Path) -> None:
    worker = yard.start(
        app="tests.worker.wandering_off:app", environment={windlass_probe.VARIABLE: str(folder)}
    )
    worker.await_log("started")
    assert worker.wait() == 2, "there is no such app"
    assert ask(folder)[0] == 1


def test_a_stopped_worker_does_not_live(yard: Yard, folder: Path) -> None:
    worker = start(yard, folder)
    until(lambda: ask(folder)[0] == 0, "readiness")
    worker.signal(signal.SIGSTOP)
    code, text = ask(folder, "--live")
    worker.signal(signal.SIGCONT)
    assert (code, text) == (1, f"worker {worker.pid}: not live: it did not answer within 2 s\n")


def test_a_killed_worker_leaves_nothing(yard: Yard, folder: Path) -> None:
    worker = start(yard, folder)
    until(lambda: ask(folder)[0] == 0, "readiness")
    worker.destroy()
    assert len(list(folder.iterdir())) == 1
    assert ask(folder)[0] == 1
    assert list(folder.iterdir()) == []


def test_the_next_worker_tidies_up(yard: Yard, folder: Path) -> None:
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "worker-1-dead.sock"))
    start(yard, folder).await_log("started")
    assert not (folder / "worker-1-dead.sock").exists()
    assert len(list(folder.iterdir())) == 1


def test_sockets_of_others_are_left_alone(yard: Yard, folder: Path) -> None:
    folder.mkdir(mode=0o700)
    names = {"other.sock", "1-other.sock", "worker-other.sock"}
    for name in names:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(folder / name))
    worker = start(yard, folder)
    until(lambda: ask(folder)[0] == 0, "readiness")
    [line] = ask(folder)[1].splitlines()
    assert line.startswith(f"worker {worker.pid} (")
    assert {path.name for path in folder.iterdir()} > names


def test_a_worker_cannot_be_seen_before_it_listens(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe in between would remove the socket, and no later probe would find the worker."""
    real = os.chmod

    def look_and_change(path: str, mode: int) -> None:
        assert windlass_probe.ask_all() == []
        windlass_probe.prune(str(folder))
        real(path, mode)

    monkeypatch.setenv(windlass_probe.VARIABLE, str(folder))
    monkeypatch.setattr(os, "chmod", look_and_change)
    with Reactor([]) as reactor, answer_probes(reactor, _say_nothing):
        [found] = folder.iterdir()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(found))
    assert list(folder.iterdir()) == []


def _say_nothing() -> WorkerStatus:
    raise AssertionError("no probe is answered here")


def test_a_folder_of_others_is_not_used(yard: Yard, folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    worker = start(yard, folder)
    worker.await_log("no health socket, windlass health cannot check this worker")
    worker.await_log("ready")
    assert "only this user can write to" in ask(folder)[1]
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_without_its_engine_a_worker_lives_but_is_not_ready(yard: Yard, folder: Path) -> None:
    start(yard, folder)
    until(lambda: ask(folder)[0] == 0, "readiness")
    with hold_the_lock(yard.folder / "jobs.db"):
        until(lambda: ask(folder)[0] == 1, "the end of readiness", READY_S + 15)
        assert "the engine does not answer" in ask(folder)[1]
        assert ask(folder, "--live")[0] == 0
    until(lambda: ask(folder)[0] == 0, "readiness again")


def test_readiness_needs_a_good_round_trip() -> None:
    def why(answered_s: float | None, *children: float | None) -> str:
        seen = [ChildStatus(pid=1, is_solo=False, jobs=0, answered_s=age) for age in children]
        return judge(is_loaded=True, is_stopping=False, answered_s=answered_s, children=seen)

    assert why(READY_S, None, READY_S + 1, READY_S) == ""
    assert why(READY_S + 0.1, 0.1) == why(None, 0.1) == "the engine does not answer"
    assert why(1, READY_S + 0.1) == why(1, None) == "none of its children reaches the engine"
    assert judge(is_loaded=False, is_stopping=False, answered_s=None, children=[])


def test_the_probe_loads_nothing_of_windlass() -> None:
    program = (
        "import sys; sys.argv = ['windlass', 'health'];"
        "import windlass_probe, atexit;"
        "atexit.register(lambda: print([name for name in sys.modules if name.split('.')[0] in"
        " ('windlass', 'msgspec', 'click', 'asyncio', 'logging')]));"
        "windlass_probe.command()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.stdout.splitlines()[-1] == "[]"
