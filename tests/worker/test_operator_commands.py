"""Commands of operators to real workers: quiet, run and stop, on every engine."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.soon import is_once
from tests.worker.conftest import MakeYard
from tests.worker.lateness import PROMPT_MS
from tests.worker.yard import Worker, Yard, until
from windlass.core.schedules.triggers import Every
from windlass.core.states import State
from windlass.engine.contract import SessionCommand
from windlass.fleet import WorkerInfo, WorkerState
from windlass.worker.supervisor.supervisor import ECHO_S

LEASE_S = 3.0
#: The heartbeat passes a command on; a busy machine takes a little longer.
OBEYED_S = LEASE_S / 3 + 2.0
#: The supervisor has told its children, which do not confirm it.
SETTLE_S = 0.5


@pytest.fixture
def yard(make_yard: MakeYard) -> Yard:
    return make_yard(lease=f"{LEASE_S:g}s")


def info_of(yard: Yard, worker: Worker) -> WorkerInfo:
    [found] = [one for one in yard.app.workers() if one.pid == worker.pid]
    return found


def start_known(
    yard: Yard, processes: int = 1, slots: int = 4, max_jobs: int | None = None
) -> Worker:
    """Start a worker, and wait until all of its children are known."""
    worker = yard.start(processes=processes, slots=slots, max_jobs=max_jobs)
    worker.await_log("ready")
    until(
        lambda: (
            [len(one.children) for one in yard.app.workers() if one.pid == worker.pid]
            == [processes]
        ),
        "all children",
    )
    return worker


def command(yard: Yard, worker: Worker, command: SessionCommand) -> None:
    """Command a worker by its name, and wait until it obeys."""
    [told] = yard.app.command_workers([info_of(yard, worker).name], command)
    assert told.pid == worker.pid
    words = {
        SessionCommand.QUIET: "quiet on command",
        SessionCommand.RUN: "resumed on command",
        SessionCommand.STOP: "stopping on command",
    }
    number = worker.log().count(words[command])
    sent_at = time.monotonic()
    until(lambda: worker.log().count(words[command]) > number, f"{command}: {worker.log()}")
    assert time.monotonic() - sent_at < OBEYED_S
    time.sleep(SETTLE_S)


@pytest.mark.local
def test_a_quiet_worker_finishes_its_jobs_and_starts_no_others(yard: Yard) -> None:
    worker = start_known(yard, processes=2, slots=2)
    gate = yard.folder / "gate"
    running = [yard.plain(f"running{n}", f"await:{gate}") for n in range(2)]
    running.append(yard.process("alone", f"await:{gate}"))
    for label in ("running0", "running1", "alone"):
        yard.await_start(label)
    command(yard, worker, SessionCommand.QUIET)
    waiting = [yard.plain("waiting"), yard.process("waiting alone")]
    gate.touch()
    assert [job.result(timeout=20) for job in running[:2]] == ["running0 done", "running1 done"]
    assert running[2].result(timeout=20) == "alone done"
    time.sleep(LEASE_S / 3)  # in which the worker could claim them
    assert {yard.record(job).state for job in waiting} == {State.READY}
    assert {yard.record(job).counters.attempt for job in waiting} == {0}
    assert info_of(yard, worker).state is WorkerState.QUIET
    command(yard, worker, SessionCommand.RUN)
    for job in waiting:
        yard.await_state(job, State.SUCCEEDED)
    assert info_of(yard, worker).state is WorkerState.RUNNING
    assert worker.stop() == 0
    assert "Traceback" not in worker.log()


@pytest.mark.local
def test_a_command_to_stop_is_like_a_signal(make_yard: MakeYard) -> None:
    yard = make_yard(lease="3s", grace="1s")
    worker = start_known(yard, processes=2)
    quick, slow = yard.plain("quick", "sleep:0.5"), yard.plain("slow", "sleep:60")
    yard.await_start("quick")
    yard.await_start("slow")
    command(yard, worker, SessionCommand.STOP)
    assert worker.wait() == 0
    assert yard.record(quick).state is State.SUCCEEDED
    record = yard.record(slow)
    assert (record.state, record.counters.attempt) == (State.READY, 0)
    assert record.counters.interruptions == 1
    assert "stopping on command: jobs have 1 s to finish" in worker.log()
    assert "handed back 1 running job" in worker.log()
    assert worker.log().splitlines()[-1].endswith("stopped")
    assert yard.app.workers() == []


@pytest.mark.local
def test_a_signal_after_a_command_to_stop_hands_back_now(yard: Yard) -> None:
    worker = start_known(yard)
    job = yard.plain("slow", "sleep:60")
    yard.await_start("slow")
    command(yard, worker, SessionCommand.STOP)
    time.sleep(ECHO_S)  # sooner, it would be taken for an echo
    began_at = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began_at < 8  # the grace is 10 s
    assert yard.record(job).state is State.READY


@pytest.mark.local
def test_a_worker_that_drains_after_a_signal_is_shown_as_stopping(yard: Yard) -> None:
    worker = start_known(yard)
    gate = yard.folder / "gate"
    yard.plain("slow", f"await:{gate}")
    yard.await_start("slow")
    worker.signal(signal.SIGTERM)
    until(lambda: info_of(yard, worker).state is WorkerState.STOPPING, "the state")
    [told] = yard.app.command_workers([info_of(yard, worker).name], "run")
    assert told.state is WorkerState.STOPPING
    gate.touch()
    assert worker.wait() == 0


@pytest.mark.local
def test_a_command_for_one_session_is_for_the_whole_worker(yard: Yard) -> None:
    worker = start_known(yard, processes=2)
    first, second = info_of(yard, worker).children
    assert yard.app.engine.command([first.session], SessionCommand.QUIET) == [True]
    until(lambda: info_of(yard, worker).state is WorkerState.QUIET, "both sessions")
    worker.await_log("quiet on command")
    time.sleep(SETTLE_S)
    job = yard.plain("waiting")
    time.sleep(LEASE_S / 3)
    assert yard.record(job).state is State.READY
    assert yard.app.engine.command([second.session], SessionCommand.RUN) == [True]
    yard.await_state(job, State.SUCCEEDED)


@pytest.mark.local
def test_a_child_that_starts_in_a_quiet_worker_is_quiet(yard: Yard) -> None:
    worker = start_known(yard)
    suspect = yard.plain("suspect", "sleep:60")
    old = yard.await_start("suspect").pid
    command(yard, worker, SessionCommand.QUIET)
    os.kill(old, signal.SIGKILL)
    until(lambda: worker.children() not in ([], [old]), "another child")
    yard.await_state(suspect, State.READY)
    job = yard.plain("waiting")

    def is_replaced() -> bool:
        infos = [child for one in yard.app.workers() for child in one.children]
        return [child.pid for child in infos] == worker.children() and all(
            child.state is WorkerState.QUIET for child in infos
        )

    until(is_replaced, "the new session, with the command")
    time.sleep(LEASE_S / 3)  # in which it could claim
    assert yard.record(job).state is State.READY
    assert len(worker.children()) == 1, "no child for the suspect"
    command(yard, worker, SessionCommand.RUN)
    yard.await_state(job, State.SUCCEEDED)
    assert yard.events("start", "waiting")[0].pid in worker.children()
    assert yard.await_start("suspect", 2).pid != old


@pytest.mark.slow
def test_a_child_that_reaches_its_limit_in_a_quiet_worker_is_replaced_by_a_quiet_one(
    yard: Yard,
) -> None:
    worker = start_known(yard, max_jobs=1)
    gate = yard.folder / "gate"
    yard.plain("last", f"await:{gate}")
    old = yard.await_start("last").pid
    command(yard, worker, SessionCommand.QUIET)
    gate.touch()
    worker.await_log(f"child {old} retires")
    until(lambda: worker.children() and old not in worker.children(), "the replacement")
    job = yard.plain("waiting")
    time.sleep(LEASE_S / 3)
    assert yard.record(job).state is State.READY
    command(yard, worker, SessionCommand.RUN)
    yard.await_state(job, State.SUCCEEDED)


def test_jobs_wake_another_worker_at_once_while_one_is_quiet(yard: Yard) -> None:
    quiet = start_known(yard, processes=2)
    start_known(yard)
    command(yard, quiet, SessionCommand.QUIET)

    def is_prompt() -> bool:
        late = 0
        for _ in range(10):
            enqueued_ns = time.time_ns()
            started_ns = yard.script.clock.enqueue().result(timeout=20)
            late += (started_ns - enqueued_ns) / 1e6 > PROMPT_MS
            time.sleep(0.03)
        return late <= 1

    assert is_once(is_prompt, tries=3)


@pytest.mark.local
def test_a_burst_that_is_made_quiet_stops(yard: Yard) -> None:
    worker = yard.start(burst=True, slots=1)
    gate = yard.folder / "gate"
    running = yard.plain("running", f"await:{gate}")
    yard.await_start("running")
    waiting = yard.plain("waiting")
    until(yard.app.workers, "the worker")
    yard.app.command_workers([info_of(yard, worker).name], "quiet")
    worker.await_log("stopping on command")
    gate.touch()
    assert worker.wait() == 0
    assert yard.record(running).state is State.SUCCEEDED
    assert yard.record(waiting).state is State.READY


@pytest.mark.slow
def test_a_quiet_worker_fires_schedules(yard: Yard) -> None:
    """Maintenance continues: a quiet worker may be the only one."""
    worker = start_known(yard)
    command(yard, worker, SessionCommand.QUIET)
    yard.app.schedules.save("ticks", yard.script.nothing.bind(), Every("1s"))
    until(lambda: yard.count(State.READY), "a job of the schedule")
    assert worker.stop() == 0


@pytest.mark.slow
def test_no_job_is_lost_or_run_twice_while_commands_change(yard: Yard) -> None:
    """Claims, hand-offs and releases meet the commands at any moment."""
    workers = [start_known(yard, processes=2) for _ in range(2)]
    number = 0
    for turn in range(6):
        worker = workers[turn % 2]
        name = info_of(yard, worker).name
        for given in (SessionCommand.QUIET, SessionCommand.RUN):
            yard.app.command_workers([name], given)
            ends_at = time.monotonic() + LEASE_S / 2
            while time.monotonic() < ends_at:
                yard.plain(f"job{number}", "sleep:0.01")
                number += 1
                time.sleep(0.002)
    yard.await_count(State.SUCCEEDED, number)
    starts = [line.label for line in yard.events("start")]
    assert len(starts) == len(set(starts)) == number
    for worker in workers:
        assert worker.log().count("quiet on command") == 3
        assert worker.stop() == 0
        assert "stale" not in worker.log()
        assert "Traceback" not in worker.log()
