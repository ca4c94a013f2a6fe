"""Without the parts that Windows lacks: producers, embedded workers, and clear errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.variants import fresh_url
from tests.worker.yard import PROJECT
from windlass import State, Windlass

#: Longer than anything here needs; nothing waits for it unless something is broken.
DEADLINE_S = 60.0
ELSEWHERE = "tests.app.elsewhere"
PROGRAM = "tests.app.travelling"


def start(url: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", ELSEWHERE, *arguments],
        cwd=PROJECT,
        env={**os.environ, "WINDLASS_URL": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    with process:
        said, _ = process.communicate(timeout=DEADLINE_S)
    return process.returncode, said


def run(url: str, *arguments: str) -> tuple[int, str]:
    return end(start(url, *arguments))


@pytest.fixture(params=["sqlite-file-normal", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


def test_things_are_really_missing() -> None:
    code, said = run("sqlite:///:memory:", "tests.app.stranded")
    assert (code, said) == (0, "")


def test_producing_and_the_worker_inside(url: str) -> None:
    """Two producers at a time: on SQLite without the lock file, for which there is no call."""
    producers = [start(url, PROGRAM, "produce") for _ in range(2)]
    assert [end(producer) for producer in producers] == [(0, "")] * 2
    with Windlass(url) as app:
        states = dict.fromkeys(State, 0) | sum_of(app)
        assert states[State.READY] == 200
        assert states[State.SCHEDULED] == 2
        assert states[State.CANCELLED] == 2
        code, said = run(url, PROGRAM, "work")
        assert code == 0, said
        assert "Traceback" not in said, said
        assert app.engine.check() == []


def sum_of(app: Windlass) -> dict[State, int]:
    total: dict[State, int] = {}
    for counts in app.engine.stats().queues.values():
        for state, number in counts.items():
            total[State(state)] = total.get(State(state), 0) + number
    return total


@pytest.mark.parametrize("command", [["worker", f"{PROGRAM}:app"], ["demo"]], ids=lambda c: c[0])
def test_a_worker_of_its_own_is_refused(command: list[str]) -> None:
    code, said = run("sqlite:///:memory:", "windlass", *command)
    assert code == 2
    assert "Expected Linux or macOS" in said
    assert "with app.worker()" in said


def test_there_is_nobody_to_ask_for_health() -> None:
    code, said = run("sqlite:///:memory:", "windlass", "health")
    assert (code, said) == (1, "Error: workers answer on Unix sockets, and this system has none.\n")


def test_commands_that_look_and_operate_work(tmp_path: Path) -> None:
    assert run(f"sqlite:///{tmp_path / 'jobs.db'}", "tests.app.commanding") == (0, "")
