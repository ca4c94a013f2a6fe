"""How a worker stops: it drains, hands back when it has to, and exits with 0."""

from __future__ import annotations

import logging
import os
import signal
import time

import psutil
import pytest

from tests.soon import is_once
from tests.worker.conftest import MakeYard
from tests.worker.yard import Yard, until
from windlass.core.retry import Retry
from windlass.core.states import Reason, State
from windlass.job import Job
from windlass.worker.ipc.channel import Ready
from windlass.worker.options import WorkerOptions
from windlass.worker.supervisor.supervisor import ECHO_S, Supervisor


def test_an_idle_worker_stops_at_once(yard: Yard) -> None:
    worker = yard.start(processes=2)
    worker.await_log("ready")
    assert worker.stop() == 0
    assert worker.log().splitlines()[-1].endswith("stopped")


@pytest.mark.local
def test_a_worker_that_is_still_loading_stops_at_once(yard: Yard) -> None:
    worker = yard.start()
    worker.await_log("started")
    assert worker.stop() == 0


@pytest.mark.local
def test_a_child_that_is_still_loading_leaves_the_signal_to_its_supervisor(yard: Yard) -> None:
    """A terminal sends Ctrl-C to both."""
    worker = yard.start()
    supervisor = psutil.Process(worker.process.pid)
    until(lambda: supervisor.children() != [], "a child")
    supervisor.children()[0].send_signal(signal.SIGINT)
    worker.await_log("ready: ")
    assert worker.stop() == 0
    assert "Traceback" not in worker.log()
    assert "died" not in worker.log()


@pytest.mark.local
@pytest.mark.parametrize(
    ("stops", "is_told", "burst", "is_said"),
    [
        (0, False, False, True),
        (1, True, False, False),
        (1, False, True, True),
        (1, True, True, False),
    ],
    ids=["works", "told to stop", "nothing left to do", "told to stop in a burst"],
)
def test_a_worker_that_was_told_to_stop_is_not_called_ready(
    yard: Yard,
    caplog: pytest.LogCaptureFixture,
    stops: int,
    is_told: bool,
    burst: bool,
    is_said: bool,
) -> None:
    supervisor = Supervisor(WorkerOptions("shop:app", (), 1, 1, None, burst=burst))
    ready = Ready("", 1, 1, 1, 1, (), "", ("t",), "info", "text", {}, {})
    with supervisor._reactor, caplog.at_level(logging.INFO, "windlass.worker"):
        supervisor._stops, supervisor._is_signalled = stops, is_told
        supervisor._show_banner(yard.app.engine, ready)
    assert any(line.startswith("ready: ") for line in caplog.messages) is is_said
    assert "tasks: t" in caplog.messages


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_drain_finishes_what_runs_and_loses_nothing(yard: Yard, number: signal.Signals) -> None:
    for count in range(20):
        yard.plain(f"p{count}", "sleep:0.1")
        yard.coroutine(f"c{count}", "sleep:0.1")
    worker = yard.start(processes=2, slots=3)
    yard.await_start("p2")
    worker.signal(number)
    assert worker.wait() == 0
    started, ended = yard.events("start"), yard.events("end")
    assert {line.label for line in started} == {line.label for line in ended}
    assert yard.count(State.RUNNING) == 0
    assert yard.count(State.SUCCEEDED) == len(ended) < 40
    assert yard.count(State.READY) == 40 - len(ended)
    yard.start(slots=10)
    yard.await_count(State.SUCCEEDED, 40)
    labels = [line.label for line in yard.events("start")]
    assert len(labels) == len(set(labels)) == 40


@pytest.mark.local
@pytest.mark.parametrize("left", ["thread", "executor"])
def test_what_plain_jobs_leave_behind_does_not_hold_up_a_stop(yard: Yard, left: str) -> None:
    assert_stops_soon(yard, yard.plain("untidy", f"leave_behind:{left}"))


@pytest.mark.local
@pytest.mark.parametrize("left", ["stubborn", "blocking"])
def test_what_coroutines_leave_behind_does_not_hold_up_a_stop(yard: Yard, left: str) -> None:
    assert_stops_soon(yard, yard.coroutine("untidy", f"leave_coroutine:{left}", "sleep:0.01"))


def assert_stops_soon(yard: Yard, job: Job[str]) -> None:
    worker = yard.start()
    assert job.result(timeout=20) == "untidy done"
    began_at = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began_at < 9  # the grace is 10 s
    assert "killing" not in worker.log()


@pytest.mark.local
def test_functions_at_exit_are_called_and_have_a_moment(yard: Yard) -> None:
    """The one that hangs was registered last, and so comes first."""
    assert_stops_soon(yard, yard.plain("untidy", "leave_behind:exit_function"))


@pytest.mark.local
def test_a_second_signal_does_not_wait_for_functions_at_exit(yard: Yard) -> None:
    def is_quick() -> bool:
        job = yard.plain("untidy", "leave_behind:exit_function")
        worker = yard.start()
        job.result(timeout=20)
        worker.signal(signal.SIGTERM)
        worker.await_log("stopping on SIGTERM")
        time.sleep(0.3)  # the fetcher has ended, which is not logged
        began_at = time.monotonic()
        assert worker.stop() == 0
        return time.monotonic() - began_at < 2.5  # taking leave may take 3 s

    assert is_once(is_quick)


@pytest.mark.local
def test_when_the_grace_is_over_running_jobs_are_handed_back(make_yard: MakeYard) -> None:
    yard = make_yard(grace="300ms")
    gate = yard.folder / "gate"
    plain = yard.plain("plain", f"await:{gate}")
    coroutine = yard.coroutine("coroutine", "sleep:60")
    worker = yard.start()
    yard.await_start("plain")
    yard.await_start("coroutine")
    assert worker.stop() == 0
    for job in (plain, coroutine):
        record = yard.record(job)
        assert record.state is State.READY
        counters = record.counters
        assert (counters.attempt, counters.interruptions, counters.starts) == (0, 1, 1)
    assert "handed back 2 running jobs" in worker.log()


@pytest.mark.local
def test_a_worker_that_is_replaced_gives_its_jobs_less_time(yard: Yard) -> None:
    job = yard.plain("long", "sleep:60")
    worker = yard.start()
    yard.await_start("long")
    worker.signal(signal.SIGUSR1)
    worker.await_log("stopping on SIGUSR1: jobs have 2 s to finish")
    time.sleep(ECHO_S * 1.2)
    assert worker.stop() == 0
    yard.await_state(job, State.READY)


@pytest.mark.local
def test_a_second_signal_hands_back_now(yard: Yard) -> None:
    job = yard.plain("stubborn", "sleep:60")
    worker = yard.start()
    yard.await_start("stubborn")
    began_at = time.monotonic()
    worker.signal(signal.SIGTERM)
    worker.await_log("stopping on SIGTERM")
    time.sleep(ECHO_S)  # sooner, it would be taken for an echo of the first
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert time.monotonic() - began_at < 8  # the grace is 10 s
    record = yard.record(job)
    assert (record.state, record.counters.interruptions) == (State.READY, 1)
    yard.start()
    assert yard.await_start("stubborn", 2).attempt == 1


@pytest.mark.local
def test_a_child_that_cannot_hand_back_is_killed_and_its_jobs_go_back(
    make_yard: MakeYard,
) -> None:
    yard = make_yard(grace="0s")
    job = yard.plain("frozen", "sleep:60")
    worker = yard.start()
    child = yard.await_start("frozen").pid
    os.kill(child, signal.SIGSTOP)
    assert worker.stop() == 0
    assert f"killing child {child}" in worker.log()
    record = yard.record(job)
    assert (record.state, record.counters.attempt, record.counters.crashes) == (State.READY, 0, 0)


@pytest.mark.local
def test_a_signal_and_its_echo_are_one(yard: Yard) -> None:
    """As `timeout` sends it: to the process, and to its group right after."""
    job = yard.plain("job", "sleep:0.6")
    worker = yard.start()
    yard.await_start("job")
    worker.signal(signal.SIGTERM)
    os.killpg(worker.pid, signal.SIGTERM)
    assert worker.wait() == 0
    assert yard.record(job).state is State.SUCCEEDED
    assert "handing back" not in worker.log()


@pytest.mark.local
def test_time_outs_hold_while_a_worker_stops(make_yard: MakeYard) -> None:
    yard = make_yard(kill_after="200ms")
    using = yard.script.plain.using(timeout="1s", retry=Retry(1))
    stuck, quick = using.enqueue("stuck", ["sleep:60"]), yard.plain("quick", "sleep:1.5")
    worker = yard.start()
    yard.await_start("stuck")
    yard.await_start("quick")
    began_at = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began_at < 9  # the grace is 10 s
    assert yard.record(quick).state is State.SUCCEEDED
    record = yard.record(stuck)
    assert (record.state, record.reason) == (State.DEAD, Reason.TIMED_OUT)
    assert "handing back" not in worker.log()


@pytest.mark.local
def test_a_second_signal_hands_back_what_runs_alone_too(yard: Yard) -> None:
    jobs = [yard.plain("shared", "sleep:60"), yard.process("alone", "sleep:60")]
    worker = yard.start()
    for label in ("shared", "alone"):
        yard.await_start(label)
    worker.signal(signal.SIGTERM)
    worker.await_log("stopping on SIGTERM")
    time.sleep(ECHO_S)
    began_at = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began_at < 8  # the grace is 10 s
    for job in jobs:
        record = yard.record(job)
        assert (record.state, record.counters.attempt) == (State.READY, 0)
        assert record.counters.interruptions == 1
