"""Processes that die, are stopped or do not respond, with real signals."""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from itertools import count
from pathlib import Path

import pytest

from tests.worker.conftest import MakeYard
from tests.worker.yard import Worker, Yard, until
from windlass.core.alerts.rules import Alert
from windlass.core.alerts.states import make_test_event
from windlass.core.states import Reason, State
from windlass.engine.contract import JobRecord
from windlass.errors import EngineUnavailable
from windlass.lost_sessions import LossKind
from windlass.worker.ipc.channel import CallAlertHooks, ChildSessionStarted, Command
from windlass.worker.options import WorkerOptions
from windlass.worker.supervisor.child_process import ChildProcess
from windlass.worker.supervisor.supervisor import Supervisor


def is_alive(pid: int) -> bool:
    try:
        return b" Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return False


def causes(record: JobRecord) -> list[tuple[str, bytes]]:
    return [(failure.event, failure.error) for failure in record.failures]


def test_the_jobs_of_a_killed_child_go_on_at_once_and_uncharged(yard: Yard) -> None:
    gate = yard.folder / "gate"
    jobs = [yard.plain(f"job{n}", f"await:{gate}") for n in range(3)]
    worker = yard.start(slots=4)
    for number in range(3):
        yard.await_start(f"job{number}")
    [child] = worker.children()
    os.kill(child, signal.SIGKILL)
    killed_at = time.monotonic()
    until(lambda: len(yard.events("start")) > 3, "a job started again")
    took_s = time.monotonic() - killed_at
    gate.touch()
    for number, job in enumerate(jobs):
        assert job.result(timeout=20) == f"job{number} done"
        counters = yard.record(job).counters
        assert (counters.attempt, counters.crashes, counters.interruptions) == (1, 0, 1)
    # The lease is 30 s: no job waited for it.
    assert took_s < 15
    assert re.search(r"signal 9 \(SIGKILL\), at up to \d+ MB of memory; running: ", worker.log()), (
        worker.log()
    )


@pytest.mark.local
def test_a_single_job_in_a_dead_child_is_charged_the_crash_and_told_the_cause(yard: Yard) -> None:
    job = yard.plain("quitter", "exit:3")
    yard.start(slots=4)
    record = yard.await_state(job, State.DEAD)
    assert (record.reason, record.counters.crashes) == (Reason.CRASHED, 3)
    assert record.counters.attempt == 0
    assert causes(record)[0] == ("crash", b"exit code 3")
    assert len(yard.events("start", "quitter")) == 3
    # The last of them is noted just after its job died.
    until(lambda: len(yard.app.lost_sessions()) == 3, "the crashes are noted")
    lost = yard.app.lost_sessions()[0]
    assert (lost.kind, lost.cause) == (LossKind.CRASHED, "exit code 3")
    assert [(one.id, one.is_suspect) for one in lost.jobs] == [(job.id, True)]
    assert [one.id for one in yard.app.crash_suspects().dead] == [job.id]


@pytest.mark.local
def test_an_idle_child_that_dies_accuses_nobody(yard: Yard) -> None:
    worker = yard.start()
    for kind in (yard.plain, yard.coroutine):
        kind("before").result(timeout=20)
    os.kill(worker.children()[0], signal.SIGKILL)
    worker.await_log("MB of memory; no job was known to be running")
    assert yard.plain("after").result(timeout=20) == "after done"


@pytest.mark.local
def test_a_poison_job_ends_dead_and_its_neighbours_succeed_uncharged(
    make_yard: MakeYard,
) -> None:
    yard = make_yard(max_crashes=3)
    innocent = [yard.plain(f"good{n}", "sleep:0.02") for n in range(25)]
    poison = yard.plain("poison", "sleep:0.01", "die")
    innocent += [yard.coroutine(f"well{n}", "sleep:0.02") for n in range(25)]
    worker = yard.start(slots=4)
    record = yard.await_state(poison, State.DEAD)
    assert record.reason is Reason.CRASHED
    assert all(b"SIGKILL" in cause for _, cause in causes(record)[:-1])
    yard.await_count(State.SUCCEEDED, 50)
    for job in innocent:
        counters = yard.record(job).counters
        assert (counters.attempt, counters.crashes) == (1, 0)
    # Once with other jobs, once alone, where its crash shows that it is to blame, and once more.
    assert len(yard.events("start", "poison")) <= 3
    assert worker.process.poll() is None


@pytest.mark.local
def test_children_that_die_at_their_start_are_not_replaced_in_a_hot_loop(yard: Yard) -> None:
    worker = yard.start()
    worker.await_log("ready")
    yard.trap.touch()
    os.kill(worker.children()[0], signal.SIGKILL)
    until(lambda: worker.log().count("exit code 7") >= 4, "four children in the trap")
    seen, began_at = worker.log().count("exit code 7"), time.monotonic()
    until(lambda: time.monotonic() - began_at > 1.0, "a second")
    assert worker.log().count("exit code 7") <= seen + 1
    yard.trap.unlink()
    assert yard.plain("after").result(timeout=20) == "after done"


def test_a_dead_supervisor_takes_its_children_along_and_others_take_over(
    make_yard: MakeYard,
) -> None:
    yard = make_yard(lease="1s")
    gate = yard.folder / "gate"
    job = yard.plain("orphan", f"await:{gate}")
    worker = yard.start(processes=2)
    first = yard.await_start("orphan")
    until(lambda: len(worker.children()) == 2, "both children")
    children = worker.children()
    os.kill(worker.pid, signal.SIGKILL)
    until(lambda: not any(map(is_alive, children)), "the end of the children")
    yard.start()
    second = yard.await_start("orphan", 2)
    gate.touch()
    assert job.result(timeout=20) == "orphan done"
    assert first.pid in children
    assert second.pid not in children
    counters = yard.record(job).counters
    assert (counters.attempt, counters.losses) == (1, 1)


@pytest.mark.local
@pytest.mark.parametrize("step", ["spin", "hold"])
def test_a_child_that_hears_nothing_ends_with_its_supervisor(yard: Yard, step: str) -> None:
    yard.plain("hog", f"{step}:60")
    worker = yard.start()
    yard.await_start("hog")
    [child] = worker.children()
    os.kill(worker.pid, signal.SIGKILL)
    until(lambda: not is_alive(child), "the end of the child")


@pytest.mark.parametrize("whole_group", [False, pytest.param(True, marks=pytest.mark.local)])
def test_a_stopped_child_loses_its_jobs_and_its_late_outcome_is_refused(
    make_yard: MakeYard, whole_group: bool
) -> None:
    yard = make_yard(lease="1s")
    gate = yard.folder / "gate"
    frozen = yard.start(slots=1)
    job = yard.plain("once", f"await:{gate}")
    first = yard.await_start("once")
    freeze(yard, frozen, first.pid, whole_group)
    yard.start()
    second = yard.await_start("once", 2)
    gate.touch()
    assert job.result(timeout=20) == "once done"
    send(frozen, first.pid, whole_group, signal.SIGCONT)
    frozen.await_log("rejected 1 stale result, the jobs")
    frozen.await_log(" expired")
    assert first.pid != second.pid
    assert yard.app.engine.stats().totals["stale"] == 1
    assert yard.record(job).counters.losses == 1
    # It is as good as new: under another session it works on.
    numbers = count(1)

    def works_on() -> bool:
        yard.plain(f"more{next(numbers)}", "sleep:0.05")
        ended = [line for line in yard.events("end") if line.label != "once"]
        return first.pid in {line.pid for line in ended}

    until(works_on, "a job that the child runs which was stopped")


def test_an_expired_session_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each heartbeat finds it expired until the child has a new session."""
    options = WorkerOptions("shop:app")
    supervisor, child = Supervisor(options), ChildProcess(options, 0, is_solo=False)
    supervisor._children[child.pid] = child
    try:
        with supervisor._reactor, caplog.at_level(logging.WARNING, "windlass.worker"):
            for session in ("first", "first", "second"):
                child.session = session
                supervisor._report_gone(session)
    finally:
        child.kill()
        until(child.has_ended, "the end of the child")
        child.close_channels()
    told = "session {} of child {} expired, telling the child"
    assert caplog.messages == [told.format(name, child.pid) for name in ("first", "second")]


class ListeningChild(ChildProcess):
    """A child that notes what it is sent."""

    def __init__(self, options: WorkerOptions) -> None:
        self.sent: list[Command] = []
        super().__init__(options, 0, is_solo=False)

    def send(self, command: Command) -> None:
        self.sent.append(command)


def test_an_alert_waits_for_a_child_that_can_call_the_hooks() -> None:
    """All children have died, which is when alerts fire."""
    options, event = WorkerOptions("shop:app"), make_test_event(Alert.dead_letters(1), 1_000)
    supervisor, child = Supervisor(options), ListeningChild(options)
    supervisor._children[child.pid] = child
    try:
        with supervisor._reactor:
            supervisor._call_alert_hooks(event)
            assert CallAlertHooks(event) not in child.sent
            for session in ("first", "second"):
                supervisor._handle(child, ChildSessionStarted(session))
    finally:
        child.kill()
        until(child.has_ended, "the end of the child")
        child.close_channels()
    assert child.sent.count(CallAlertHooks(event)) == 1


def freeze(yard: Yard, worker: Worker, child: int, whole_group: bool) -> None:
    """Stop processes at a moment when none of them holds the lock on the database, which would
    block all other processes too."""
    while True:
        send(worker, child, whole_group, signal.SIGSTOP)
        try:
            yard.app.engine.beat([])
        except EngineUnavailable:
            send(worker, child, whole_group, signal.SIGCONT)
        else:
            return


def send(worker: Worker, child: int, whole_group: bool, number: signal.Signals) -> None:
    if whole_group:
        os.killpg(worker.pid, number)
    else:
        os.kill(child, number)


@pytest.mark.local
@pytest.mark.parametrize("step", ["hold", "spin", "block"])
def test_a_job_that_hogs_its_process_for_many_leases_runs_once(
    make_yard: MakeYard, step: str
) -> None:
    yard = make_yard(lease="1s")
    job = yard.coroutine("hog", f"{step}:3")
    yard.start()
    yard.await_start("hog")
    yard.start()
    assert job.result(timeout=20) == "hog done"
    assert len(yard.events("start", "hog")) == 1
    assert yard.record(job).counters.losses == 0
