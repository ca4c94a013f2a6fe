"""Which command of an operator a worker obeys, and which sessions get it in the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.worker.faulty import Faulty, lose_reply, lose_request, once
from windlass.engine.contract import Beat, Engine, EngineOptions, Pulse, SessionCommand
from windlass.engine.url import open_engine
from windlass.errors import EngineUnavailable
from windlass.worker.maintenance.session_commands import CommandWatch

RUN, QUIET, STOP = SessionCommand.RUN, SessionCommand.QUIET, SessionCommand.STOP


class Office:
    """A worker with the sessions "a" and "b", and its heartbeats."""

    def __init__(self, folder: Path) -> None:
        options = EngineOptions(lease_ms=30_000, dead_ttl_ms=60_000)
        self.engine = open_engine(f"sqlite:///{folder / 'jobs.db'}", options)
        self.engine.migrate()
        self.faulty = Faulty(self.engine)
        self.obeyed: list[SessionCommand] = []
        self.worker = CommandWatch(cast(Engine, self.faulty), self.obeyed.append)
        self.sessions = ["a", "b"]
        self.beat()

    def beat(self, *sessions: str) -> None:
        """Send heartbeats for all sessions, or only for these."""
        beats = [Beat(session=one, info=b"it is me") for one in sessions or self.sessions]
        self.worker.note(self.sessions, self.engine.beat(beats))

    def command(self, command: SessionCommand, *sessions: str) -> None:
        assert all(self.engine.command(sessions, command))

    def stored(self) -> dict[str, SessionCommand]:
        return {record.session: record.command for record in self.engine.sessions()}


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path)
    yield office
    office.engine.shutdown()


def test_heartbeats_without_a_change_cost_no_call(office: Office) -> None:
    office.beat()
    office.command(QUIET, "a", "b")
    office.beat()
    office.beat()
    assert office.obeyed == [QUIET]
    assert office.faulty.calls == []


@pytest.mark.parametrize("command", [QUIET, STOP])
def test_a_command_for_one_session_is_for_the_whole_worker(
    office: Office, command: SessionCommand
) -> None:
    office.command(command, "b")
    office.beat()
    office.beat()
    assert office.obeyed == [command]
    assert office.stored() == {"a": command, "b": command}
    assert office.faulty.calls == ["command"]


@pytest.mark.parametrize("session", ["a", "b"])
def test_any_session_resumes_the_worker(office: Office, session: str) -> None:
    office.command(QUIET, "a")
    office.beat()
    office.command(RUN, session)
    office.beat()
    assert office.obeyed == [QUIET, RUN]
    assert office.stored() == {"a": RUN, "b": RUN}


def test_a_later_session_gets_the_command(office: Office) -> None:
    office.command(QUIET, "a", "b")
    office.beat()
    office.sessions = ["b", "c"]
    office.beat()
    assert office.stored()["c"] is QUIET
    office.command(RUN, "c")
    office.beat()
    assert office.obeyed == [QUIET, RUN]


def test_a_session_that_was_commanded_before_its_first_heartbeat_counts(office: Office) -> None:
    office.sessions.append("c")
    office.engine.beat([Beat(session="c", info=b"it is me")])
    office.command(QUIET, "c")
    office.beat()
    assert office.obeyed == [QUIET]


def test_a_stop_is_final(office: Office) -> None:
    office.command(STOP, "a", "b")
    office.beat()
    office.command(RUN, "a", "b")
    office.beat()
    assert office.obeyed == [STOP]
    assert office.stored() == {"a": STOP, "b": STOP}


def test_of_two_commands_at_once_the_stronger_counts(office: Office) -> None:
    office.command(QUIET, "a")
    office.command(STOP, "b")
    office.beat()
    assert office.obeyed == [STOP]


def test_a_worker_that_a_signal_stops_is_shown_as_stopping(office: Office) -> None:
    office.worker.note_stop()
    office.beat()
    assert office.stored() == {"a": STOP, "b": STOP}
    assert office.obeyed == []


def test_the_end_of_a_session_is_no_command(office: Office) -> None:
    office.command(QUIET, "a", "b")
    office.beat()
    office.engine.close("a", (), "the end")
    office.beat()
    assert office.obeyed == [QUIET]
    assert office.stored() == {"b": QUIET}


def test_a_child_that_was_frozen_meanwhile_does_not_bring_back_an_old_command(
    office: Office,
) -> None:
    office.command(QUIET, "a", "b")
    office.beat()
    office.command(RUN, "a")
    office.beat("a")
    office.beat()
    assert office.obeyed == [QUIET, RUN]
    assert office.stored() == {"a": RUN, "b": RUN}


@pytest.mark.parametrize("fault", [lose_request, lose_reply])
def test_an_outage_delays_only_what_the_engine_gets(
    office: Office, fault: Callable[[Callable[[], Any]], Any]
) -> None:
    office.faulty.faults["command"] = once(fault)
    office.command(QUIET, "a")
    with pytest.raises(EngineUnavailable):
        office.beat()
    assert office.obeyed == [QUIET]
    office.beat()
    assert office.stored() == {"a": QUIET, "b": QUIET}
    assert office.obeyed == [QUIET]


def test_a_session_that_the_engine_does_not_know_gets_the_command_later(office: Office) -> None:
    office.command(QUIET, "a", "b")
    office.beat()
    office.sessions.append("c")
    office.worker.note(office.sessions, [Pulse(session="c", alive=True)])
    assert "c" not in office.stored()
    office.beat()
    assert office.stored()["c"] is QUIET
