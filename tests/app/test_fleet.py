"""`app.command_workers`: which sessions get a command, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass import Windlass, WorkerNotFound, WorkerState
from windlass.core.introduction import HTTP, Introduction
from windlass.engine.contract import Beat, SessionCommand


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Windlass]:
    """An app with two workers of two children each, and one worker of the worker protocol."""
    with Windlass(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        for pid in (10, 20):
            for child in (pid + 1, pid + 2):
                known = Introduction(host="web", worker=pid, child=child, lease_ms=30_000)
                introduce(app, f"web.{child}.x", known)
        for number in (1, 2):
            introduce(app, f"node-{number}", Introduction(host="node", kind=HTTP))
        yield app


def introduce(app: Windlass, session: str, known: Introduction) -> None:
    app.engine.beat([Beat(session=session, info=known.pack())])


def states(app: Windlass) -> dict[str, WorkerState]:
    return {worker.name: worker.state for worker in app.workers()}


def commands(app: Windlass) -> dict[str, SessionCommand]:
    return {record.session: record.command for record in app.engine.sessions()}


@pytest.mark.parametrize("name", ["web:20", "web.21.x", "web.22.x"])
def test_a_name_or_a_session_stands_for_the_whole_worker(app: Windlass, name: str) -> None:
    [told] = app.command_workers([name], "quiet")
    assert (told.name, told.state) == ("web:20", WorkerState.QUIET)
    assert {child.state for child in told.children} == {WorkerState.QUIET}
    assert [name for name, one in commands(app).items() if one is SessionCommand.QUIET] == [
        "web.21.x",
        "web.22.x",
    ]
    assert states(app)["web:10"] is WorkerState.RUNNING
    assert states(app)["web:20"] is WorkerState.QUIET
    app.command_workers([name], "run")
    assert set(commands(app).values()) == {SessionCommand.RUN}


def test_a_session_of_the_worker_protocol_stands_for_itself(app: Windlass) -> None:
    [told] = app.command_workers(["node-1"], "quiet")
    assert [child.session for child in told.children] == ["node-1"]
    assert commands(app)["node-2"] is SessionCommand.RUN
    assert states(app)["node:http"] is WorkerState.RUNNING
    app.command_workers(["node-2"], SessionCommand.QUIET)
    assert states(app)["node:http"] is WorkerState.QUIET
    app.command_workers(["node:http"], "run")
    assert states(app)["node:http"] is WorkerState.RUNNING


def test_a_worker_that_is_named_twice_is_told_once(app: Windlass) -> None:
    told = app.command_workers(["web:10", "web.11.x", "node-1", "node-2"], "quiet")
    assert [worker.name for worker in told] == ["web:10", "node:http", "node:http"]


def test_an_unknown_name_commands_none(app: Windlass) -> None:
    with pytest.raises(WorkerNotFound, match=r"no live worker web:30 .* web:10, web:20") as found:
        app.command_workers(["web:10", "web:30"], "quiet")
    assert (found.value.name, found.value.known) == ("web:30", ("node:http", "web:10", "web:20"))
    assert set(commands(app).values()) == {SessionCommand.RUN}


def test_a_worker_with_an_expired_lease_is_unknown(app: Windlass) -> None:
    app.engine.clock_offset_ms += 31_000
    with pytest.raises(WorkerNotFound, match=r"no live worker web:10 .*, and no other one"):
        app.command_workers(["web:10"], "quiet")


def test_a_worker_that_is_stopping_stays_so(app: Windlass) -> None:
    app.command_workers(["web:10"], "stop")
    [told] = app.command_workers(["web:10"], "run")
    assert told.state is WorkerState.STOPPING
    assert commands(app)["web.11.x"] is SessionCommand.STOP


def test_a_worker_that_has_ended_meanwhile_is_left_out(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = app.engine.command

    def end_first(sessions: list[str], command: SessionCommand) -> list[bool]:
        for session in sessions:
            if session.startswith("web.1"):
                app.engine.close(session, (), "the end")
        return real(sessions, command)

    monkeypatch.setattr(app.engine, "command", end_first)
    told = app.command_workers(["web:10", "web:20"], "quiet")
    assert [worker.name for worker in told] == ["web:20"]


def test_coroutines_command_too(app: Windlass) -> None:
    [told] = asyncio.run(app.acommand_workers(["web:10"], "quiet"))
    assert told.state is states(app)["web:10"] is WorkerState.QUIET


def test_mistakes_are_explained(app: Windlass) -> None:
    name: Any = "web:10"
    with pytest.raises(TypeError, match=r"a list of workers, found 'web:10': write \['web:10'\]"):
        app.command_workers(name, "quiet")
    command: Any = "pause"
    with pytest.raises(ValueError, match="one of run, quiet, stop, found 'pause'"):
        app.command_workers(["web:10"], command)


def test_an_error_names_few_of_many_workers() -> None:
    error = WorkerNotFound("a:1", "", tuple(f"b:{number}" for number in range(100)))
    assert str(error).endswith("b:9 and 90 more. `windlass workers` lists them.")
