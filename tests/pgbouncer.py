"""A private PgBouncer for the tests, in front of a PostgreSQL server: a free port, its own folder.

It pools by transaction: consecutive transactions of one client may use different connections to the
server. Without it, tests that need it are skipped on a laptop, and fail in continuous integration.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from typing import Any, Final

import psycopg
import pytest

from tests.postgres_server import (
    OWNER,
    PATIENCE_S,
    SUPERUSER,
    WORKER,
    PostgresServer,
    new_folder,
    run_unprivileged,
)
from tests.redis_server import free_port

ABSENT: Final = (
    "There is no PgBouncer here. `make programs` as root installs it on Debian and Ubuntu; "
    "elsewhere, install it so that `pgbouncer` is found (on macOS: brew install pgbouncer)."
)


def find_pgbouncer() -> str:
    # A search path without the programs of administrators is common on Debian.
    found = shutil.which("pgbouncer", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if found is None and not os.environ.get("CI"):
        pytest.skip(ABSENT)
    assert found is not None, ABSENT
    return found


class PgBouncer:
    """One process in front of all databases of a server; its users have no passwords."""

    def __init__(self, server: PostgresServer, **settings: str) -> None:
        self._program = find_pgbouncer()
        self._server = server
        self.folder = new_folder("windlass-pgb-")
        self._log = self.folder / "log"
        self._settings = {
            "listen_addr": "127.0.0.1",
            "unix_socket_dir": str(self.folder),
            "auth_type": "trust",
            "auth_file": str(self.folder / "users"),
            "admin_users": SUPERUSER,
            "pool_mode": "transaction",
            **settings,
        }
        users = (f'"{name}" ""\n' for name in (SUPERUSER, OWNER, WORKER))
        (self.folder / "users").write_text("".join(users))
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
        """Start, and wait until it accepts connections."""
        settings = {**self._settings, "listen_port": str(self.port)}
        configuration = self.folder / "pgbouncer.ini"
        configuration.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self._server.port}\n[pgbouncer]\n"
            + "".join(f"{name} = {value}\n" for name, value in settings.items())
        )
        self._process = run_unprivileged(
            self._program, configuration, folder=self.folder, log=self._log
        )
        deadline = time.monotonic() + PATIENCE_S
        while "process up" not in self.log():
            if self._process.poll() is not None or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        # It also runs without its port.
        if f"listening on 127.0.0.1:{self.port}" not in self.log():
            self.kill()
            raise RuntimeError(self.log())

    @property
    def pid(self) -> int:
        return self._process.pid

    def log(self) -> str:
        return self._log.read_text()

    def url(self, database: str, *, user: str = WORKER, **options: object) -> str:
        """The url of a database through the pool."""
        return self._server.url(database, user=user, port=self.port, **options)

    def tell(self, command: str) -> list[tuple[Any, ...]]:
        """The rows that its console returns for a command, such as SHOW POOLS."""
        with psycopg.connect(
            host="127.0.0.1", port=self.port, dbname="pgbouncer", user=SUPERUSER, autocommit=True
        ) as console:
            return console.execute(command).fetchall()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it: the connections of all clients end."""
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def end(self) -> None:
        """End it in any state."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
