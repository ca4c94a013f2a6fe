"""Run the commands of `examples/deploy`, probe them, and stop them by the signal that their file
names, with orders of the web server: no order is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final

import pytest

from tests.deploy.files import EXAMPLE, Workload, workers, workloads
from tests.worker.yard import DEADLINE_S, until
from windlass import State, Windlass

ORDERS: Final = 60
PROGRAMS: Final = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
PROBES: Final = {"live": ["windlass", "health", "--live"], "ready": ["windlass", "health"]}


class Place:
    """One machine: the jobs in a file, the sockets of the workers in the temporary folder."""

    def __init__(self, folder: Path, temporary: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'jobs.db'}"
        self._temporary = temporary
        self._log = folder / "log"

    def environment(self, workload: Workload) -> dict[str, str]:
        """Of the file, but for what belongs to this machine."""
        own = {
            "PATH": PROGRAMS,
            "PYTHONDONTWRITEBYTECODE": "1",
            "WINDLASS_URL": self.url,
            "TMPDIR": str(self._temporary),
        }
        if "WINDLASS_RUNTIME_DIR" in workload.environment:
            own["WINDLASS_RUNTIME_DIR"] = str(self._temporary / "run")
        return {**os.environ, **workload.environment, **own}

    @contextmanager
    def running(
        self, workload: Workload, *more: str, output: IO[bytes] | int | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a command by the name of its program, as in a container; kill it at the end if it
        still runs."""
        program, *arguments = workload.command
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [Path(program).name, *arguments, *more],
                cwd=EXAMPLE,
                env=self.environment(workload) | {"PORT": "0"},
                stdout=output,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def ask(self, workload: Workload, probe: list[str]) -> int:
        ran = subprocess.run(
            probe,
            cwd=EXAMPLE,
            env=self.environment(workload),
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return ran.returncode

    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place whose temporary folder is writable for all, as in a container, and has a short name,
    because paths of sockets are limited."""
    with TemporaryDirectory(prefix="windlass-") as temporary:
        os.chmod(temporary, 0o777)
        yield Place(tmp_path, Path(temporary))


def different(found: list[Workload]) -> list[Workload]:
    """One for each command: the image and the service of compose have the same."""
    return list({" ".join(one.command): one for one in reversed(found)}.values())[::-1]


def runs() -> list[object]:
    """That of Kubernetes differs from that of the image by a limit."""
    return [
        pytest.param(one, id=one.name, marks=[pytest.mark.slow] * one.name.startswith("kubernetes"))
        for one in different(workers())
    ]


@pytest.mark.parametrize("worker", runs())
def test_it_is_probed_and_stopped_and_loses_nothing(worker: Workload, place: Place) -> None:
    answers: list[tuple[int, int]] = []

    def ask() -> tuple[int, int]:
        answers.append((place.ask(worker, PROBES["live"]), place.ask(worker, PROBES["ready"])))
        return answers[-1]

    assert ask() == (1, 1), "no worker runs yet"
    ids = take_orders(place)
    with Windlass(place.url) as app, place.running(worker) as process:
        until(lambda: ask() == (0, 0), "readiness")
        assert (1, 0) not in answers, "what is ready lives"
        until(lambda: counted(app).get(State.SUCCEEDED), "a first order")
        process.send_signal(signal.Signals[worker.signal])
        assert process.wait(DEADLINE_S + 25) == 0, place.log()
        assert ask() == (1, 1)
        assert f"stopping on {worker.signal}" in place.log()
        left = counted(app)
        assert left.keys() <= {State.SUCCEEDED, State.READY}
        assert sum(left.values()) >= ORDERS
        with place.running(worker, "--burst") as again:
            assert again.wait(DEADLINE_S + 25) == 0, place.log()
        assert counted(app) == {State.SUCCEEDED: 2 * ORDERS}, "each with its receipt"
        assert all(app.job(id).info().attempts == 1 for id in ids), "and once only"


def take_orders(place: Place) -> list[str]:
    """By the web server, as its file starts it, and stopped as it would be."""
    [web] = different([one for one in workloads() if not one.is_worker])
    with place.running(web, output=subprocess.PIPE) as process:
        assert process.stdout is not None
        with process.stdout:
            port = int(process.stdout.readline().split()[-1])
            call = caller(port)
            assert call("GET", "/healthz") == {"ok": True}
            jobs = [call("POST", f"/orders/order-{n}?cents={n}")["job"] for n in range(ORDERS)]
            assert call("POST", "/orders/order-0?cents=0")["job"] == jobs[0], "it was sent again"
            assert call("GET", f"/jobs/{jobs[0]}") == {"state": "ready"}
            process.send_signal(signal.Signals[web.signal])
            assert process.wait(DEADLINE_S) == 0, place.log()
    return [str(job) for job in jobs]


def caller(port: int) -> Callable[[str, str], dict[str, object]]:
    def call(method: str, path: str) -> dict[str, object]:
        request = urllib.request.Request(f"http://localhost:{port}{path}", method=method)
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            decoded: dict[str, object] = json.load(answer)
            return decoded

    return call


def counted(app: Windlass) -> dict[State, int]:
    total: dict[State, int] = {}
    for counts in app.engine.stats().queues.values():
        for state, number in counts.items():
            if number:
                total[state] = total.get(state, 0) + number
    return total


def test_both_kinds_of_probes_are_those_of_the_files() -> None:
    found = workers()
    assert all(command == PROBES["live"] for one in found for command in one.live)
    assert all(command == PROBES["ready"] for one in found for command in one.ready)
