"""`windlass demo --serve` as a process: its address, its load, and its end by signals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from tests.cli.shell import Shell
from tests.postgres_server import OWNER, shared_server
from tests.redis_server import free_port, private_server
from tests.worker.yard import until


class LiveDemo:
    """The command in a process group of its own, as in a terminal."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "windlass", "demo", "--serve"],
                cwd=folder,
                env={**os.environ, "TMPDIR": str(folder), **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.address = until(self._find_address, "the address")

    def _find_address(self) -> str:
        assert self.process.poll() is None, self.output()
        text = self.output()
        return text.split()[0] if "Ctrl-C stops" in text else ""

    def output(self) -> str:
        return self._output.read_text()

    def get(self, path: str) -> httpx.Response:
        """Wait for the answer: the server starts after the past is made."""
        return httpx.get(f"{self.address}{path}", timeout=60)

    def succeeded(self) -> int:
        found: int = self.get("v1/stats").json()["jobs"]["succeeded"]
        return found

    def processes(self) -> list[psutil.Process]:
        """The processes below the demo: its worker, and the children of the worker."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self, number: signal.Signals) -> int:
        """Send a signal to all processes of the terminal; return the exit code."""
        below = self.processes()
        os.killpg(self.process.pid, number)
        code = self.process.wait(60)
        assert not [process for process in below if process.is_running()]
        return code


@contextmanager
def live_demo(folder: Path, **environment: str) -> Iterator[LiveDemo]:
    demo = LiveDemo(folder, **environment)
    try:
        yield demo
    finally:
        if demo.process.poll() is None:
            demo.end(signal.SIGTERM)


@pytest.mark.slow
def test_it_serves_the_dashboard_until_ctrl_c(shell: Shell) -> None:
    with live_demo(shell.folder) as demo:
        assert demo.address.startswith("http://127.0.0.1:")
        assert "windlass" in demo.get("").text
        alerts = demo.get("v1/alerts").json()["alerts"]
        wrong = [one for one in alerts if one["state"] in ("pending", "firing")]
        assert "no_worker" not in {alert["kind"] for alert in wrong}
        before = demo.succeeded()
        assert before > 9_000
        until(lambda: demo.succeeded() > before, "a job of the worker")
        until(lambda: len(demo.processes()) >= 3, "the worker and its two children")
        assert demo.end(signal.SIGINT) == 0
    printed = demo.output()
    assert "ended cleanly" in printed
    assert "Traceback" not in printed
    [folder] = shell.folder.glob("windlass-demo-*")
    assert f"rm -r {folder}" in printed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_while_it_makes_the_past(shell: Shell, number: signal.Signals) -> None:
    with live_demo(shell.folder) as demo:
        assert demo.end(number) == 0
    assert "Traceback" not in demo.output()


@pytest.mark.slow
def test_the_end_of_the_terminal_ends_it(shell: Shell) -> None:
    with live_demo(shell.folder) as demo:
        assert demo.get("readyz").status_code == 200
        assert demo.end(signal.SIGHUP) == 0, demo.output()
    assert "ended cleanly" in demo.output()


@pytest.mark.slow
def test_it_runs_on_a_server(shell: Shell) -> None:
    server = private_server()
    server.tell("CONFIG", "SET", "requirepass", "secret")
    try:
        url = f"redis://default:secret@127.0.0.1:{server.port}/1"
        with live_demo(shell.folder, WINDLASS_URL=url) as demo:
            before = demo.succeeded()
            until(lambda: demo.succeeded() > before, "a job of the worker")
            assert demo.end(signal.SIGINT) == 0
        assert "secret" not in demo.output()
        assert "redis-cli -u" in demo.output()
    finally:
        server.end()


@pytest.mark.slow
def test_it_runs_on_postgresql(shell: Shell) -> None:
    server = shared_server()
    name = server.new_database()
    with live_demo(shell.folder, WINDLASS_URL=server.url(name, user=OWNER)) as demo:
        before = demo.succeeded()
        until(lambda: demo.succeeded() > before, "a job of the worker")
        assert demo.end(signal.SIGINT) == 0
    assert "DROP SCHEMA windlass_demo_" in demo.output()
    server.drop_database(name)


@pytest.mark.slow
def test_a_server_that_is_away_leaves_nothing(shell: Shell) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    ran = shell.type("demo", "--serve", TMPDIR=str(shell.folder), WINDLASS_URL=url)
    assert (ran.code, ran.out) == (3, "")
    assert "did not answer" in ran.err
    assert "Traceback" not in ran.err
    assert not list(shell.folder.glob("windlass-demo-*"))


def test_a_url_that_cannot_be_used_leaves_nothing(shell: Shell) -> None:
    ran = shell.type("demo", "--serve", TMPDIR=str(shell.folder), WINDLASS_URL="mysql://localhost")
    assert (ran.code, ran.out) == (2, "")
    assert "mysql" in ran.err
    assert not list(shell.folder.glob("windlass-demo-*"))


def test_a_port_in_use_is_an_error(shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = shell.type("demo", "--serve", "--port", str(port), TMPDIR=str(shell.folder))
    assert ran.code == 1
    assert f"Cannot listen on 127.0.0.1 port {port}" in ran.err
    assert not list(shell.folder.glob("windlass-demo-*"))


def test_a_port_needs_serve(shell: Shell) -> None:
    ran = shell.type("demo", "--port", "8200")
    assert ran.code == 2
    assert "--serve" in ran.err
