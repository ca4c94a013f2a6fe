"""The threads of a worker together: how a command goes from the heartbeat to the waiter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.yard import until
from windlass.engine.contract import EngineOptions, Plan, SessionCommand
from windlass.engine.url import open_engine
from windlass.worker.ipc.channel import Ready
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.maintenance.measures import WorkerMeasures
from windlass.worker.supervisor.engine_threads import EngineThreads

LEASE_MS = 600


class Living:
    """A child, as the threads see it."""

    session = "session"
    introduction = b"it is me"
    introduced = ""

    def __init__(self) -> None:
        self.table = SlotTable.create(1)
        self.table.close_descriptor()

    def is_running(self) -> bool:
        return True


@pytest.mark.parametrize("command", [SessionCommand.QUIET, SessionCommand.STOP])
def test_a_command_ends_the_wait_before_children_are_told(
    tmp_path: Path, command: SessionCommand
) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    options = EngineOptions(lease_ms=LEASE_MS, dead_ttl_ms=60_000)
    engine, operator = open_engine(url, options), open_engine(url, options)
    ready = Ready(url, LEASE_MS, 1, 1, 1, (), "", (), "info", "text", {}, {})
    told: list[tuple[SessionCommand, bool]] = []
    child = Living()
    threads = EngineThreads(
        ready,
        engine,
        options,
        living=lambda: [child],
        on_gone=lambda session: None,
        on_cancel=lambda session, ids: None,
        on_command=lambda given: told.append((given, threads.waiter._is_quiet)),
        on_suspects=lambda: None,
        on_alert=lambda alert: None,
        measures=WorkerMeasures(),
        suspects=Plan(suspects=True),
    )
    threads.start()
    until(operator.sessions, "the session")
    operator.command(["session"], command)
    until(lambda: told == [(command, True)], "the command")
    if command is SessionCommand.QUIET:
        operator.command(["session"], SessionCommand.RUN)
        until(lambda: told[1:] == [(SessionCommand.RUN, False)], "the next command")
    threads.waiter.stop(10)
    threads.heartbeat.stop(10)
    threads.maintenance.stop(10)
    operator.shutdown()
