"""A standby of a private PostgreSQL server, which streams its changes through a slot."""

from __future__ import annotations

from tests.postgres_server import (
    PostgresServer,
    find_program,
    new_folder,
    run_unprivileged,
)


class Replica(PostgresServer):
    """A copy of a server that follows it, and tells it which rows its queries need."""

    def __init__(self, primary: PostgresServer) -> None:
        self._program = find_program("postgres")
        self.folder = new_folder("windlass-pg-")
        self._data = self.folder / "data"
        self._log = self.folder / "log"
        self._settings = {
            **primary._settings,
            "unix_socket_directories": str(self.folder),
            "hot_standby_feedback": "on",
            "wal_receiver_status_interval": "1",
        }
        self._copy_from(primary)
        self._find_port()

    def _copy_from(self, primary: PostgresServer) -> None:
        access = primary.folder / "data" / "pg_hba.conf"
        access.write_text(f"{access.read_text()}local replication all trust\n")
        with primary.connect() as connection:
            connection.execute("SELECT pg_reload_conf()")
        place = ["-h", str(primary.folder), "-p", str(primary.port), "-U", "postgres"]
        copying = run_unprivileged(
            find_program("pg_basebackup"),
            *("-D", str(self._data), "-R", "-C", "-S", "replica", "-c", "fast", *place),
            folder=self.folder,
            log=self._log,
        )
        assert copying.wait() == 0, self.log()
