"""Heartbeat and maintenance of the supervisor, with a real engine."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from threading import enumerate as enumerate_threads
from time import monotonic
from typing import Any, NoReturn, cast

import pytest

from tests.worker.faulty import Faulty, lose_reply, lose_request, once
from tests.worker.yard import until
from windlass.app import Windlass
from windlass.calls.redaction import CallRedactor
from windlass.core.history import Summary
from windlass.core.schedules.triggers import Every
from windlass.core.states import Reason, State
from windlass.engine.contract import (
    UNKNOWN_NONCE_MS,
    Buried,
    EndedCall,
    Engine,
    Finding,
    Grade,
    Plan,
    Retried,
    Tended,
)
from windlass.errors import EngineUnavailable
from windlass.testing.contract.world import claim_jobs
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.maintenance import heartbeat as contact_module
from windlass.worker.maintenance import lost_jobs
from windlass.worker.maintenance import service as service_module
from windlass.worker.maintenance.alerts import AlertEvaluator
from windlass.worker.maintenance.heartbeat import Contact, Heartbeat
from windlass.worker.maintenance.measures import WorkerMeasures
from windlass.worker.maintenance.schedules import Scheduler, declarations
from windlass.worker.maintenance.service import Closing, Maintenance
from windlass.worker.supervisor.supervisor import CLOSE_S

#: Beats come every third of it; the engine's own lease is 30 s.
LEASE_MS = 60


class Living:
    """A child, as heartbeat and maintenance see it."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.table = SlotTable.create(2)
        self.runs = True
        self.introduction = b"it is me"
        self.introduced = ""

    def is_running(self) -> bool:
        return self.runs


class Office:
    def __init__(self, folder: Path) -> None:
        self.app = Windlass(f"sqlite:///{folder / 'jobs.db'}")
        self.task = self.app.task(name="nothing")(_nothing)
        self.engine = self.app.engine
        self.faulty = Faulty(self.engine)
        self.child = Living("session")
        self.measures = WorkerMeasures()
        self.gone: list[str] = []
        self.suspects: list[bool] = []
        self.cancelled: list[tuple[str, tuple[str, ...]]] = []
        self.make(LEASE_MS)

    def make(self, lease_ms: int, scheduler: Scheduler | None = None) -> None:
        contact = Contact(self.engine.location)
        self.heartbeat = Heartbeat(
            cast(Engine, self.faulty),
            lease_ms,
            living=lambda: [self.child],
            on_gone=self.gone.append,
            on_cancel=lambda session, ids: self.cancelled.append((session, ids)),
            on_command=lambda command: None,
            contact=contact,
            ends_engine=False,
        )
        self.maintenance = Maintenance(
            cast(Engine, self.faulty),
            living=lambda: [self.child],
            on_suspects=lambda: self.suspects.append(True),
            heartbeat=self.heartbeat,
            contact=contact,
            scheduler=scheduler or Scheduler(self.engine),
            alerts=AlertEvaluator(self.engine, (), lambda _event: None),
            redactor=CallRedactor.of(self.app),
            measures=self.measures,
        )

    def start(self) -> None:
        self.heartbeat.start()
        self.maintenance.start()

    def claim(self, nonce: str) -> str:
        job = self.task.enqueue()
        assert len(claim_jobs(self.engine, "session", nonce, Plan(), 1).claims) == 1
        return job.id

    def state(self, job_id: str) -> State:
        [record] = self.engine.get([job_id])
        assert record is not None
        return record.state


def _nothing() -> None: ...


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path)
    yield office
    office.heartbeat.stop(10)
    office.maintenance.stop(10)
    assert office.engine.check() == []
    office.app.close()


def test_claims_under_a_nonce_that_the_child_does_not_know_are_given_back(office: Office) -> None:
    known, lost, later = (office.claim(nonce) for nonce in ("a-known", "b-lost", "c-later"))
    office.child.table.nonces.write(0, "a-known")
    office.child.table.newest_nonce.write(0, "b-lost")
    office.engine.clock_offset_ms += UNKNOWN_NONCE_MS + 1
    office.start()
    until(lambda: office.state(lost) is State.READY, "the lost claim given back")
    assert office.state(known) is State.RUNNING
    assert office.state(later) is State.RUNNING, "it was announced after the look at the newest"
    assert office.child.table.confirmed_beat() > 0


def test_jobs_that_another_worker_has_lost_are_told_of(
    office: Office, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_jobs, "LOOK_S", 0.02)
    monkeypatch.setattr(service_module, "TEND_S", 0.02)
    office.task.enqueue()
    assert claim_jobs(office.engine, "another", "nonce", Plan(), 1).claims
    office.start()
    until(lambda: "stats" in office.faulty.calls, "the first look")
    for _ in range(4):
        office.engine.clock_offset_ms += 10_000
        office.faulty.calls.clear()
        until(lambda: office.faulty.calls.count("beat") > 1, "a beat")
    until(lambda: "reclaimed 1 job" in caplog.text, "the line")


def test_a_session_that_is_gone_is_told_of(office: Office) -> None:
    office.claim("nonce")
    office.engine.close("session", (), "a test")
    office.start()
    until(lambda: office.gone, "the news")
    assert office.gone[0] == "session"
    assert office.child.table.confirmed_beat() == 0


def test_nobody_beats_for_a_child_that_does_not_run(office: Office) -> None:
    office.child.runs = False
    office.claim("nonce")
    office.start()
    until(lambda: office.faulty.calls.count("beat") > 3, "some beats")
    assert office.child.table.confirmed_beat() == 0


@pytest.mark.parametrize("verb", ["tend", "stats", "close", "examine"])
def test_beats_wait_for_no_other_call(office: Office, verb: str) -> None:
    """The maintenance may take as long as a slow link makes it take."""
    gate, entered = Event(), Event()

    def block(real: Callable[[], Any], _arguments: tuple[Any, ...]) -> Any:
        entered.set()
        assert gate.wait(20)
        return real()

    office.faulty.faults[verb] = block
    office.claim("nonce")
    office.start()
    if verb == "close":
        office.maintenance.request(Closing("another", (), "exit code 0"))
    assert entered.wait(10)
    blocked_at = monotonic()
    until(lambda: office.child.table.confirmed_beat() > blocked_at + LEASE_MS / 1000, "beats")
    gate.set()


def test_a_closing_that_fails_is_tried_again_and_suspects_are_told_of(office: Office) -> None:
    jobs = [office.claim("nonce"), office.claim("other")]
    office.faulty.faults["close"] = once(lose_request)
    office.start()
    office.maintenance.request(Closing("session", tuple(jobs), "signal 9 (SIGKILL)"))
    until(lambda: office.suspects, "the news of suspects")
    assert [office.state(job) for job in jobs] == [State.READY] * 2
    assert office.faulty.calls.count("close") == 2


def test_as_long_as_there_is_more_to_tend_it_goes_on_at_once(office: Office) -> None:
    office.faulty.faults["tend"] = lambda real, arguments: Tended(more=True)
    office.start()
    until(lambda: office.faulty.calls.count("tend") > 20, "twenty bites", seconds=5)
    office.faulty.faults.clear()
    office.maintenance.stop(10)


def test_a_closing_that_was_asked_for_is_done_before_the_end(office: Office) -> None:
    job = office.claim("nonce")
    office.start()
    office.maintenance.request(Closing("session", (), "exit code 0"))
    office.maintenance.stop(10)
    assert office.state(job) is State.READY


def test_a_session_is_introduced_before_it_claims(office: Office) -> None:
    """By its first heartbeat, not by the one that lists nonces."""
    office.make(lease_ms=30_000)
    office.start()
    until(office.engine.sessions, "the session to be known")
    office.child.session = "another"
    office.heartbeat.beat_soon()
    until(lambda: len(office.engine.sessions()) == 2, "the other one to be known")
    known = {record.session: record.info for record in office.engine.sessions()}
    assert known == {"session": b"it is me", "another": b"it is me"}


def test_an_engine_that_lost_its_data_is_told_again_of_sessions_and_schedules(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    """At once, not by the heartbeat that lists nonces or a minute later; also when another call
    finds the loss."""
    office.app.task(name="often", schedule=Every("1h"))(_nothing)
    keeper = Scheduler(office.engine, declarations(office.app))
    office.make(30_000, keeper)
    answers = iter([Tended(doomed=("job",)), Tended(emptied=True)])

    def lose(real: Callable[[], Any], arguments: tuple[Any, ...]) -> Tended:
        if arguments == (("job",),):
            assert office.engine.remove_schedule("often")
        return next(answers, None) or real()

    office.faulty.faults["tend"] = lose
    introduced: list[bytes] = []

    def note(real: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        introduced.extend(beat.info for beat in arguments[0])
        return real()

    office.faulty.faults["beat"] = note
    with caplog.at_level(logging.WARNING, "windlass.worker"):
        office.start()
        until(lambda: introduced == [b"it is me"] * 2, "another introduction", seconds=5)
        until(office.engine.list_schedules, "another declaration", seconds=5)
    [told] = (one for one in caplog.records if "engine lost its data" in one.msg)
    assert told.levelno == logging.ERROR
    assert str(office.engine.location) in caplog.text


def test_ended_calls_of_suspended_processes_are_logged(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    """Also those that the removal of dead letters has ended."""
    calls = [EndedCall(client=f"shop at {place}", silent_ms=20_345) for place in ("one", "two")]
    first = Tended(doomed=("job",), ended_calls=tuple(calls[:1]))
    answers = iter([first, Tended(ended_calls=tuple(calls[1:]))])
    office.faulty.faults["tend"] = lambda real, _: next(answers, None) or real()
    with caplog.at_level(logging.WARNING, "windlass.worker"):
        office.start()
        until(lambda: len(caplog.messages) > 1, "two lines")
    assert caplog.messages == [
        f"ended a call of a suspended process, shop at {place}: it kept its locks without "
        "progress for 20s"
        for place in ("one", "two")
    ]


def test_an_engine_that_can_only_be_read_is_not_reached_again(
    office: Office, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "TEND_S", 0.01)
    monkeypatch.setattr(lost_jobs, "LOOK_S", 0.01)
    monkeypatch.setattr(contact_module, "AGAIN_S", 0.2)
    office.start()
    until(lambda: office.maintenance.answered_at, "the first answer")
    looks: list[float] = []

    def note(real: Callable[[], Any], _arguments: tuple[Any, ...]) -> Any:
        looks.append(monotonic())
        return real()

    with caplog.at_level(logging.WARNING, "windlass.worker"):
        office.faulty.faults["tend"] = lambda real, _arguments: lose_request(real)
        until(lambda: "supervisor lost connection to engine" in caplog.text, "the failure")
        office.faulty.faults["stats"] = note
        until(lambda: len(looks) > 20, "looks that succeed")
        del office.faulty.faults["tend"]
        until(lambda: "reached the engine again" in caplog.text, "its end")
    said = [one.msg for one in caplog.records if one.msg.startswith("supervisor ")]
    assert len(said) == 2


def test_a_job_that_was_ended_by_force_is_reported_before_its_session_is_closed(
    office: Office,
) -> None:
    job = office.claim("nonce")
    office.faulty.faults["finish"] = once(lose_request)
    outcome = Buried(id=job, token="nonce", reason=Reason.TIMED_OUT, error=b"")
    office.maintenance.request(outcome)
    office.maintenance.request(Closing("session", (), "signal 9 (SIGKILL)"))
    office.start()
    until(lambda: "close" in office.faulty.calls, "the closing")
    assert office.state(job) is State.DEAD
    requests = [call for call in office.faulty.calls if call in ("finish", "close")]
    assert requests == ["finish", "finish", "close"]


@pytest.mark.parametrize("fault", [lose_request, lose_reply])
@pytest.mark.parametrize("verb", ["finish", "get"])
def test_a_run_that_was_ended_by_force_counts_once_after_an_error(
    office: Office, fault: Callable[[Callable[[], Any]], Any], verb: str
) -> None:
    job = office.claim("nonce")
    office.faulty.faults[verb] = once(fault)
    office.maintenance.request(
        Buried(id=job, token="nonce", reason=Reason.TIMED_OUT, error=b"by force")
    )
    office.start()
    office.maintenance.stop(CLOSE_S)
    assert office.faulty.calls.count("finish") == 2
    assert runs(office) == {"nothing": 1}


def test_a_run_that_ended_while_it_was_ended_by_force_is_left_to_its_child(office: Office) -> None:
    """Both report a retry; the child counts its own."""
    job = office.claim("nonce")
    own = Retried(id=job, token="nonce", delay_ms=0, error=b"its own")
    office.engine.finish([own])
    office.faulty.faults["finish"] = once(lose_reply)
    office.maintenance.request(Retried(id=job, token="nonce", delay_ms=0, error=b"by force"))
    office.start()
    office.maintenance.stop(CLOSE_S)
    assert office.faulty.calls.count("finish") == 2
    assert runs(office) == {}


def runs(office: Office) -> dict[str, int]:
    """The number of recorded runs by task, in all minutes together."""
    found = Counter[str]()
    for row in office.engine.history(120_000).measures:
        found[row.task] += Summary(row.counts).runs
    return dict(+found)


@pytest.mark.parametrize("fault", [lose_request, lose_reply])
def test_measures_are_recorded_at_the_end_also_after_an_error(
    office: Office, fault: Callable[[Callable[[], Any]], Any]
) -> None:
    office.faulty.faults["record"] = once(fault)
    office.start()
    office.measures.add_run("mail", "send", 0, 0.1, 0.2)
    office.maintenance.stop(CLOSE_S)
    assert office.faulty.calls.count("record") == 2
    [row] = [row for row in office.engine.history(120_000).measures if row.task == "send"]
    assert Summary(row.counts).runs == 1


def test_an_engine_that_refuses_the_last_report_is_not_asked_without_a_pause(
    office: Office,
) -> None:
    refused = Event()

    def refuse(_real: Callable[[], Any], _arguments: tuple[Any, ...]) -> NoReturn:
        office.measures.add_run("default", "nothing", 0, None, 0.1)  # a child reports meanwhile
        refused.set()
        raise EngineUnavailable("no connection")

    office.measures.add_run("default", "nothing", 0, None, 0.1)
    office.faulty.faults["record"] = refuse
    office.start()
    office.maintenance.stop(1.0)
    assert refused.is_set()
    assert office.faulty.calls.count("record") <= 6


def test_the_run_of_a_request_that_is_done_last_is_recorded_too(office: Office) -> None:
    job = office.claim("nonce")
    office.faulty.faults["finish"] = once(lose_request)  # so that the first record is too early
    office.start()
    office.measures.add_run("mail", "send", 0, 0.1, 0.2)
    outcome = Buried(id=job, token="nonce", reason=Reason.TIMED_OUT, error=b"")
    office.maintenance.request(outcome)
    office.maintenance.stop(CLOSE_S)
    assert runs(office) == {"send": 1, "nothing": 1}


def test_cancellations_are_told_of(office: Office) -> None:
    job = office.claim("nonce")
    office.engine.cancel([job])
    office.start()
    until(lambda: office.cancelled, "the news")
    assert office.cancelled[0] == ("session", (job,))


def test_what_is_asked_for_at_the_last_moment_is_not_forgotten(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the end of a request and the moment when the next wait is set."""
    job = office.claim("nonce")

    def ask_and_tell() -> float:
        if "close" in office.faulty.calls and not asked.is_set():
            asked.set()
            office.maintenance.request(Closing("session", (), "exit code 0"))
        return monotonic()

    asked = Event()
    monkeypatch.setattr(service_module, "monotonic", ask_and_tell)
    office.make(lease_ms=30_000)
    office.maintenance.request(Closing("another", (), "exit code 0"))
    office.start()
    until(lambda: office.state(job) is State.READY, "its session to be closed", seconds=5)


def test_nobody_is_left_behind_when_the_engine_does_not_come_back(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    office.faulty.faults["close"] = lambda real, arguments: lose_request(real)
    office.start()
    office.maintenance.request(Closing("session", (), "exit code 0"))
    until(lambda: "close" in office.faulty.calls, "a first try")
    office.maintenance.stop(0.1)
    assert "could not close 1 session: their running and unreported jobs" in caplog.text
    until(lambda: "maintenance" not in {thread.name for thread in enumerate_threads()}, "the end")


def test_what_a_confirmed_job_survives_is_said_once(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    def find(real: Callable[[], Any], arguments: tuple[Any, ...]) -> list[Finding]:
        return [*real(), Finding(Grade.PROBLEM, "room", "the disk is full")]

    office.faulty.faults["examine"] = find
    with caplog.at_level(logging.INFO, "windlass.worker"):
        office.start()
        until(lambda: "the disk is full" in caplog.text, "the findings")
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert said == [
        (
            "INFO",
            "durability: full (survives process crash and power loss)",
        ),
        ("WARNING", "engine problem, room: the disk is full"),
    ]
    assert office.faulty.calls.count("examine") == 1
