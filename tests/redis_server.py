"""A private redis-server for the tests: a free port, a folder of its own, an append-only file.

It is started at the first use and ended with the tests. Where there is none, tests that need it are
left out on a laptop, and fail in continuous integration.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest

#: How long a server may take to start, in seconds.
PATIENCE_S = 10.0
ABSENT = (
    "There is no redis-server here. Install it (on Debian and Ubuntu: apt install redis-server; "
    "on macOS: brew install redis)."
)


class RedisServer:
    """One server process, and what the tests do to it."""

    def __init__(self, *settings: str) -> None:
        executable = shutil.which("redis-server")
        if executable is None:
            raise FileNotFoundError(ABSENT)
        self.folder = Path(tempfile.mkdtemp(prefix="windlass-redis-"))
        self.port = free_port()
        self._command = [
            *(executable, "--port", str(self.port), "--bind", "127.0.0.1"),
            *("--dir", str(self.folder), "--logfile", str(self.folder / "log")),
            *("--unixsocket", str(self.folder / "socket"), "--save", ""),
            *("--appendonly", "yes", "--appendfsync", "everysec", *settings),
        ]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.01)

    def url(self, *, port: int | None = None, **options: object) -> str:
        """A place of its own on this server, unless the options name one; the port may be that of
        a proxy before it."""
        options = {"namespace": f"test-{secrets.token_hex(6)}", **options}
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"redis://127.0.0.1:{port or self.port}/0?{query}"

    def tell(self, *words: str) -> bytes:
        """One command on a connection of its own, and the beginning of the reply."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(" ".join(words).encode() + b"\r\n")
            return connection.recv(65536)

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self.thaw()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            return self.tell("PING") == b"+PONG\r\n"
        except OSError:
            return False


@cache
def shared_server() -> RedisServer:
    """The server of all tests that leave it as it is."""
    server = private_server()
    atexit.register(server.end)
    return server


def private_server(*settings: str) -> RedisServer:
    """A server for a test that does something to it; the test ends it."""
    try:
        return RedisServer(*settings)
    except FileNotFoundError:
        if os.environ.get("CI"):
            raise
        pytest.skip(ABSENT)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
