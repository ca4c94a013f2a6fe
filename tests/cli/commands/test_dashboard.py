"""`windlass dashboard` as a process: its address, its login, its browser and its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from tests.cli.shell import Shell
from tests.worker.yard import until
from windlass import Windlass

#: Notes its argument in place of a browser.
BROWSER = """#!/bin/sh
printf %s "$1" > opened.part
mv opened.part opened
"""


class DashboardProcess:
    """The command, with a program in place of the browser."""

    def __init__(self, shell: Shell, *options: str) -> None:
        self._output = shell.folder / "output"
        self._opened = shell.folder / "opened"
        browser = shell.folder / "browser"
        browser.write_text(BROWSER)
        browser.chmod(0o755)
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "windlass", "dashboard", "tasks:app", *options],
                cwd=shell.folder,
                env={**os.environ, "BROWSER": f"{browser} %s"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.address = until(self._find_address, "the address")
        self.origin, _, self.code = self.address.partition("/login?code=")

    def _find_address(self) -> str:
        assert self.process.poll() is None, self.output()
        text = self.output()
        return text.split()[0] if "Ctrl-C stops it" in text else ""

    def output(self) -> str:
        return self._output.read_text()

    def opened(self) -> str:
        """The address that the browser got."""
        return self._opened.read_text() if self._opened.exists() else ""

    def log_in(self) -> httpx.Response:
        form, headers = {"code": self.code}, {"Origin": self.origin}
        return httpx.post(f"{self.origin}/login", data=form, headers=headers)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()


def test_it_opens_a_browser_that_logs_in_once(shell: Shell) -> None:
    dashboard = DashboardProcess(shell)
    try:
        assert dashboard.origin.startswith("http://127.0.0.1:")
        until(lambda: dashboard.opened() == dashboard.address, "the browser")
        assert httpx.get(dashboard.address).status_code == 200
        assert httpx.get(f"{dashboard.origin}/v1/me").status_code == 401
        answer = dashboard.log_in()
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"].partition(";")[0]
        me = httpx.get(f"{dashboard.origin}/v1/me", headers={"cookie": cookie}).json()
        assert me["role"] == "admin"
        assert me["name"].startswith("dashboard:")
        assert dashboard.log_in().status_code == 401
    finally:
        code = dashboard.stop()
    assert code == 0
    printed = dashboard.output()
    assert printed.count(dashboard.code) == 1
    assert "refused the one-time code of the dashboard" in printed
    with Windlass(shell.url) as app:
        assert not app.access_tokens.exist()


def test_it_opens_no_browser_when_told_so(shell: Shell) -> None:
    dashboard = DashboardProcess(shell, "--no-browser", "--log-level", "info")
    try:
        assert httpx.get(dashboard.origin).status_code == 200
    finally:
        assert dashboard.stop() == 0
    assert dashboard.opened() == ""
    assert "GET / 200" in dashboard.output()
    assert dashboard.output().count(dashboard.code) == 1


def test_a_port_in_use_is_an_error(shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = shell.type("dashboard", "tasks:app", "--no-browser", "--port", str(port))
    assert ran.code == 1
    assert f"Cannot listen on 127.0.0.1 port {port}" in ran.err
    assert ran.out == ""


@pytest.mark.parametrize("given", [["--port", "x"], ["--host", "0.0.0.0"]])
def test_it_listens_on_this_machine_only(shell: Shell, given: list[str]) -> None:
    assert shell.type("dashboard", "tasks:app", *given).code == 2
