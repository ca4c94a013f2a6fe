"""A private redis-server for the tests: a free port, its own folder, an append-only file.

It starts at the first use and ends with the tests. Without a redis-server, tests that need it are
skipped on a laptop, and fail in continuous integration.

Urls of a server log in as a user with exactly the documented rights; the tests themselves act as
administrator.
"""

from __future__ import annotations

import atexit
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

#: How long a server may take to start, in seconds.
PATIENCE_S = 10.0
#: The ports of servers. In cluster mode a server also listens on its port plus 10,000.
PORTS = range(12_000, 32_000)
ABSENT = (
    "There is no redis-server here. Install it (on Debian and Ubuntu: apt install redis-server; "
    "on macOS: brew install redis)."
)


#: The page with the ACL rule for a separate user.
RIGHTS_PAGE = Path(__file__).parent.parent / "docs" / "internals" / "redis.md"


def documented_rights(namespace: str) -> list[str]:
    """The documented ACL rule of the namespace `windlass`, for another namespace."""
    return _documented_rule().replace("windlass", namespace).split()


@cache
def _documented_rule() -> str:
    page = RIGHTS_PAGE.read_text(encoding="utf-8")
    rules: list[str] = re.findall(r"^ACL SETUSER windlass (.*)$", page, re.MULTILINE)
    (rule,) = rules
    return rule


class RedisServer:
    """One server process, with actions for tests."""

    def __init__(self, *settings: str, patience_s: float = PATIENCE_S) -> None:
        executable = shutil.which("redis-server")
        if executable is None:
            raise FileNotFoundError(ABSENT)
        self._patience_s = patience_s
        self.folder = Path(tempfile.mkdtemp(prefix="windlass-redis-"))
        self._users = self.folder / "users.acl"
        self._rights: dict[str, tuple[str, ...]] = {}  # of every user
        self._command = [
            *(executable, "--bind", "127.0.0.1"),
            *("--dir", str(self.folder), "--logfile", str(self.folder / "log")),
            *("--unixsocket", str(self.folder / "socket"), "--save", ""),
            *("--aclfile", str(self._users)),
            *("--appendonly", "yes", *settings),
        ]
        self._find_port()

    def _find_port(self) -> None:
        """Find a free port. Another process may take it between its choice and its use."""
        while True:
            self.port = free_port()
            try:
                return self.start()
            except RuntimeError as error:
                if "Address already in use" not in str(error):
                    raise

    def start(self) -> None:
        users = (f"user {name} {' '.join(rights)}\n" for name, rights in self._rights.items())
        self._users.write_text("".join(users))
        command = [*self._command, "--port", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + self._patience_s
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.01)

    @property
    def pid(self) -> int:
        return self._process.pid

    def url(self, *, port: int | None = None, **options: object) -> str:
        """The url of a new namespace, unless the options name one, for a user with the documented
        rights; the port may be that of a proxy."""
        namespace = str(options.setdefault("namespace", f"test-{secrets.token_hex(6)}"))
        self.add_user(namespace, *documented_rights(namespace))
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"redis://{namespace}:secret@127.0.0.1:{port or self.port}/0?{query}"

    def url_for(self, user: str, database: int = 0) -> str:
        """The url for a user with the password "secret", in the default namespace."""
        return f"redis://{user}:secret@127.0.0.1:{self.port}/{database}"

    def add_user(self, name: str, *rights: str) -> None:
        """Add a user, or change the rights of one; they also apply after a restart."""
        if self._rights.get(name) == rights:
            return
        self._rights[name] = rights
        assert self.tell("ACL", "SETUSER", name, "reset", *rights) == b"+OK\r\n"

    def tell(self, *words: str) -> bytes:
        """Send one command on a new connection, and return the start of the reply."""
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

    def restart_empty(self) -> None:
        """Restart without data; only the users are kept."""
        self.kill()
        for kept in self.folder.iterdir():
            if kept.is_dir():
                shutil.rmtree(kept)
            elif kept.suffix in (".aof", ".rdb"):
                kept.unlink()
        self.start()

    def end(self) -> None:
        self.thaw()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        """Whether this server answers, and not another one that has taken its port."""
        own = f"process_id:{self._process.pid}\r\n".encode()
        try:
            return self.tell("PING") == b"+PONG\r\n" and own in self.tell("INFO", "server")
        except OSError:
            return False


@cache
def shared_server() -> RedisServer:
    """The server of all tests that do not change it."""
    server = private_server("--appendfsync", "everysec")
    atexit.register(server.end)
    return server


def private_server(*settings: str) -> RedisServer:
    """A server for a test that changes it; the test ends it."""
    try:
        return RedisServer("--appendfsync", "always", *settings)
    except FileNotFoundError:
        if os.environ.get("CI"):
            raise
        pytest.skip(ABSENT)


def free_port() -> int:
    """A free port that stays free: systems give the ports from 32,768 on to outgoing connections,
    and the tests that run at the same time have many of them."""
    while True:
        port = PORTS.start + secrets.randbelow(len(PORTS))
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
