"""Autoscaling of real workers: a load step, leaving children, kills, commands and outages."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from tests.redis_server import RedisServer, private_server
from tests.worker.conftest import MakeYard
from tests.worker.yard import Worker, Yard, until
from windlass.core.states import State
from windlass.engine.contract import SessionCommand
from windlass.job import Job
from windlass.worker.ipc.channel import Command, DrainChild, SetQuiet
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.maintenance.demand import WorkerDemand
from windlass.worker.options import WorkerOptions
from windlass.worker.supervisor.autoscale import Autoscaler
from windlass.worker.supervisor.child_process import ChildProcess
from windlass.worker.supervisor.reactor import Reactor
from windlass.worker.supervisor.retirement import Retirements
from windlass.worker.supervisor.scale_policy import ScalePeriods

PERIODS = ScalePeriods(look_s=0.1, rest_s=0.1, hold_s=0.6, step_s=0.2)
#: The first child stays, and no other one leaves, during a test.
UP_ONLY = PERIODS._replace(hold_s=600.0)


def start(
    yard: Yard, least: int, most: int, *, slots: int = 2, periods: ScalePeriods = PERIODS
) -> Worker:
    worker = yard.start(processes=least, most_processes=most, slots=slots, periods=periods)
    worker.await_log("ready")
    return worker


def fill(yard: Yard, number: int, gate: Path, name: str = "job") -> list[Job[str]]:
    """Enqueue jobs that run until the gate exists."""
    call = yard.script.plain.bind
    jobs = yard.script.plain.enqueue_many(
        call(f"{name}{n}", [f"await:{gate}"]) for n in range(number)
    )
    return list(jobs)


def await_children(worker: Worker, number: int, seconds: float = 20.0) -> list[int]:
    until(lambda: len(worker.children()) == number, f"{number} children:\n{worker.log()}", seconds)
    return worker.children()


def keeps(worker: Worker, number: int, seconds: float) -> bool:
    """Whether the number of children stays for this time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if len(worker.children()) != number:
            return False
        time.sleep(0.02)
    return True


def check_each_ran_once(yard: Yard, jobs: list[Job[str]], others: int = 0) -> None:
    starts = [line.label for line in yard.events("start")]
    assert len(starts) == len(set(starts)) == len(jobs) + others
    records = [yard.record(job) for job in jobs]
    assert {record.state for record in records} == {State.SUCCEEDED}
    assert {record.counters.interruptions for record in records} == {0}
    assert {record.counters.attempt for record in records} == {1}


# ------------------------------------------------------------------------------------- load steps


@pytest.mark.local
def test_children_follow_a_load_step(yard: Yard) -> None:
    worker = start(yard, 1, 3)
    [first] = worker.children()
    gate = yard.folder / "gate"
    jobs = fill(yard, 200, gate)
    await_children(worker, 3)
    until(lambda: yard.count(State.RUNNING) == 6, "jobs in all slots")
    assert keeps(worker, 3, 0.3), "no more than the largest number"
    [info] = yard.app.workers()
    assert (info.least_children, info.most_children) == (1, 3)
    gate.touch()
    yard.await_count(State.SUCCEEDED, 200)
    await_children(worker, 1)
    assert keeps(worker, 1, 2 * PERIODS.step_s), "no fewer than the smallest number"
    assert worker.children() == [first], "the youngest leave first"
    check_each_ran_once(yard, jobs)
    log = worker.log()
    assert "1..3 x 2 slots" in log
    assert "scaled up from 1 to 3 children: " in log
    assert "scaled down from 3 to 2 children: " in log
    assert "scaled down from 2 to 1 child: " in log
    assert "died" not in log
    assert worker.stop() == 0


@pytest.mark.slow
def test_two_eight_and_two_children(yard: Yard) -> None:
    """A step that needs all children is one decision."""
    worker = start(yard, 2, 8, periods=PERIODS._replace(hold_s=2.0))
    call, queue = yard.script.plain.bind, yard.app.queue("default")
    queue.pause()  # jobs are stored in chunks: the worker must not see the first one alone
    jobs = list(
        yard.script.plain.enqueue_many(call(f"job{n}", ["sleep:0.1"]) for n in range(1_500))
    )
    queue.resume()
    await_children(worker, 8)
    assert "scaled up from 2 to 8 children: " in worker.log()
    yard.await_count(State.SUCCEEDED, 1_500, 60)
    await_children(worker, 2)
    assert worker.log().count("scaled down from ") >= 6, "one by one"
    check_each_ran_once(yard, jobs)
    assert worker.stop() == 0


@pytest.mark.slow
def test_two_workers_share_the_load(yard: Yard) -> None:
    workers = [start(yard, 1, 6, periods=UP_ONLY) for _ in range(2)]
    until(lambda: len(yard.app.workers()) == 2, "both workers")
    gate, queue = yard.folder / "gate", yard.app.queue("default")
    queue.pause()
    jobs = fill(yard, 360, gate)
    queue.resume()
    for worker in workers:
        worker.await_log("scaled up from 1 to ")
        [number] = re.findall(r"scaled up from 1 to (\d)", worker.log())
        assert int(number) <= 4, "half of 4 + 360 / 60 slots, or of more if the other was first"
    gate.touch()
    yard.await_count(State.SUCCEEDED, 360, 60)
    check_each_ran_once(yard, jobs)


# ----------------------------------------------------------------------------------- leaving


class Leaver(NamedTuple):
    """A worker with two children. One of them leaves while it runs a job."""

    worker: Worker
    jobs: list[Job[str]]
    pid: int
    stays: int  # the pid of the other child
    gates: list[Path]  # of the last two jobs


def let_one_leave(yard: Yard) -> Leaver:
    worker = start(yard, 1, 2, slots=4)
    gates = {f"job{n}": yard.folder / f"gate{n}" for n in range(30)}
    jobs = [yard.plain(label, f"await:{gate}") for label, gate in gates.items()]
    stays, leaves = await_children(worker, 2)
    until(lambda: len(yard.events("start")) == 8, "jobs in all slots")
    last = {line.pid: line.label for line in yard.events("start")}  # one job of each child
    for label in set(gates) - set(last.values()):
        gates[label].touch()
    worker.await_log("scaled down from 2 to 1 child:")
    yard.await_count(State.SUCCEEDED, 28)
    return Leaver(worker, jobs, leaves, stays, [gates[label] for label in last.values()])


def run_others(yard: Yard, number: int = 20) -> set[int]:
    """Run jobs one after another; return the processes in which they ran."""
    for n in range(number):
        assert yard.plain(f"other{n}").result(timeout=20) == f"other{n} done"
    return {line.pid for line in yard.events("start") if line.label.startswith("other")}


@pytest.mark.local
def test_a_leaving_child_claims_no_more_and_finishes_its_job(yard: Yard) -> None:
    worker, jobs, leaves, stays, gates = let_one_leave(yard)
    assert run_others(yard) == {stays}
    assert keeps(worker, 2, 2 * PERIODS.hold_s), "a running job has no deadline"
    for gate in gates:
        gate.touch()
    until(lambda: worker.children() == [stays], "the end of the leaving child")
    assert f"child {leaves} retires: the worker needs fewer children" in worker.log()
    assert "died" not in worker.log()
    assert worker.stop() == 0
    check_each_ran_once(yard, jobs, others=20)


@pytest.mark.slow
def test_a_leaving_child_claims_again_if_it_is_needed(yard: Yard) -> None:
    worker, jobs, leaves, stays, gates = let_one_leave(yard)
    gate = yard.folder / "again"
    more = fill(yard, 30, gate, "more")
    until(
        lambda: {leaves, stays} == {one.pid for one in yard.events("start") if "more" in one.label},
        "jobs in the child that was leaving",
    )
    assert worker.children() == [stays, leaves], "and no new one"
    for one in (gate, *gates):
        one.touch()
    yard.await_count(State.SUCCEEDED, 60)
    check_each_ran_once(yard, jobs + more)
    await_children(worker, 1)
    assert worker.stop() == 0


@pytest.mark.slow
def test_a_leaving_child_that_is_killed_is_not_replaced(yard: Yard) -> None:
    worker, jobs, leaves, stays, gates = let_one_leave(yard)
    os.kill(leaves, signal.SIGKILL)
    worker.await_log(f"child {leaves} died")
    for gate in gates:
        gate.touch()
    yard.await_count(State.SUCCEEDED, 30)  # one of them again, in a solo child
    until(lambda: worker.children() == [stays], "no other child")
    assert [record.counters.crashes for record in map(yard.record, jobs)].count(1) == 1
    assert worker.stop() == 0


@pytest.mark.slow
def test_a_worker_stops_while_a_child_leaves(yard: Yard) -> None:
    worker, _, _, _, gates = let_one_leave(yard)
    worker.signal(signal.SIGTERM)
    worker.await_log("stopping on SIGTERM")
    for gate in gates:
        gate.touch()
    assert worker.wait() == 0
    yard.await_count(State.SUCCEEDED, 30)
    assert "handing back" not in worker.log()


# ------------------------------------------------------------------------------- commands, deaths


@pytest.mark.slow
def test_a_quiet_worker_keeps_its_children(make_yard: MakeYard) -> None:
    yard = make_yard(lease="3s")
    worker = start(yard, 1, 3)
    gate = yard.folder / "gate"
    jobs = fill(yard, 2, gate)
    until(lambda: len(yard.events("start")) == 2, "jobs in all slots")
    [info] = until(yard.app.workers, "the worker")
    yard.app.command_workers([info.name], "quiet")
    worker.await_log("quiet on command")
    jobs += fill(yard, 200, gate, "waiting")
    assert keeps(worker, 1, 15 * PERIODS.look_s)
    yard.app.command_workers([info.name], "run")
    worker.await_log("resumed on command")
    await_children(worker, 3)
    gate.touch()
    yard.await_count(State.SUCCEEDED, 202)
    check_each_ran_once(yard, jobs)
    assert worker.stop() == 0


@pytest.mark.slow
def test_resuming_a_worker_does_not_resume_a_leaving_child(make_yard: MakeYard) -> None:
    yard = make_yard(lease="3s")
    worker, _, _, stays, _ = let_one_leave(yard)
    [info] = yard.app.workers()
    for given, words in (("quiet", "quiet on command"), ("run", "resumed on command")):
        yard.app.command_workers([info.name], SessionCommand(given))
        worker.await_log(words)
    assert run_others(yard) == {stays}


@pytest.mark.slow
def test_a_child_that_is_killed_while_the_worker_scales_is_replaced(yard: Yard) -> None:
    worker = start(yard, 1, 4, periods=UP_ONLY)
    gate = yard.folder / "gate"
    jobs = fill(yard, 200, gate)
    worker.await_log("scaled up from 1 to ")
    killed = worker.children()[0]
    os.kill(killed, signal.SIGKILL)
    until(lambda: len(set(worker.children()) - {killed}) >= 4, "as many as before")
    worker.await_log(" died: ")
    until(lambda: yard.count(State.RUNNING) >= 8, "jobs in all slots")
    gate.touch()
    yard.await_count(State.SUCCEEDED, 200, 60)
    counters = [yard.record(job).counters for job in jobs]
    assert sum(one.interruptions + one.crashes for one in counters) == 2, "of the killed child"
    until(lambda: len(worker.children()) == 4, "the solo child to end", 30)
    assert worker.stop() == 0


@pytest.mark.slow
def test_children_are_recycled_while_the_worker_scales(yard: Yard) -> None:
    worker = yard.start(processes=1, most_processes=3, slots=2, max_jobs=25, periods=PERIODS)
    call = yard.script.plain.bind
    jobs = list(yard.script.plain.enqueue_many(call(f"job{n}", ["sleep:0.03"]) for n in range(600)))
    yard.await_count(State.SUCCEEDED, 600, 60)
    await_children(worker, 1)
    assert "retires: it has ended " in worker.log()
    assert "scaled up" in worker.log()
    check_each_ran_once(yard, jobs)
    assert worker.stop() == 0


# ----------------------------------------------------------------------------------------- outages


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = private_server()
    yield server
    server.end()


@pytest.mark.slow
@pytest.mark.parametrize("least", [1, 3])
def test_while_the_engine_is_frozen_the_number_of_children_stays(
    server: RedisServer, tmp_path: Path, least: int
) -> None:
    """With 1, the worker has to scale down when the engine freezes; with 3 of 5, up."""
    yard = Yard(tmp_path, "30s", "5s", 3, server.url(namespace="frozen"))
    try:
        freeze_while_scaling(yard, server, least)
    finally:
        server.thaw()
        yard.close()


def freeze_while_scaling(yard: Yard, server: RedisServer, least: int) -> None:
    worker = start(yard, least, 3 if least == 1 else 5, periods=PERIODS._replace(hold_s=2.0))
    gate = yard.folder / "gate"
    jobs = fill(yard, 60, gate)
    if least == 1:
        await_children(worker, 3)
        gate.touch()
        yard.await_count(State.SUCCEEDED, 60)
    server.freeze()
    number = len(worker.children())
    assert keeps(worker, number, 6.0)
    server.thaw()
    gate.touch()
    yard.await_count(State.SUCCEEDED, 60)
    await_children(worker, least)
    check_each_ran_once(yard, jobs)
    assert worker.stop() == 0


# ------------------------------------------------------------------------------ the choice alone


class Wooden:
    """As much of a child as is looked at, with real shared memory."""

    def __init__(self, pid: int, *, jobs: int = 0, slots: int = 4, session: str = "some") -> None:
        self.pid = pid
        self.session = session
        self.is_solo = self.is_retiring = self.is_leaving = self.is_patient = False
        self.sent: list[Command] = []
        self.table = SlotTable.create(slots)
        for slot in range(jobs):
            self.table.occupy(slot, f"job{slot}")

    def send(self, command: Command) -> None:
        self.sent.append(command)


class Office:
    """An autoscaler of 1..4 children without a worker."""

    def __init__(self, reactor: Reactor, *children: Wooden) -> None:
        self.children = list(children)
        self.started = self.asked = self.coming = 0
        self.is_held = False
        self.scaler = Autoscaler(
            reactor,
            WorkerOptions("app", processes=1, most_processes=4, slots=4),
            ScalePeriods(look_s=0.01, rest_s=0.01, hold_s=0.0, step_s=0.0),
            Retirements(reactor, 2, replace=self._start, kill=lambda child: None),
            living=lambda: cast(list[ChildProcess], self.children),
            count_coming=lambda: self.coming,
            start_child=self._start,
            is_held=lambda: self.is_held,
        )

    def _start(self) -> None:
        self.started += 1

    def _ask(self) -> None:
        self.asked += 1

    def count_requests(self, reactor: Reactor, looks: int = 3) -> int:
        self.scaler.start(self._ask)
        for _ in range(looks):
            reactor.wait()
        return self.asked


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    with Reactor([]) as reactor:
        yield reactor


BACKLOG = WorkerDemand(ready=400, running=8, oldest_s=10, slots=14.7, work_s=400, mean_run_s=1)
IDLE = WorkerDemand()


def test_the_child_with_the_fewest_jobs_leaves_and_retires_when_it_is_idle(
    reactor: Reactor,
) -> None:
    children = [Wooden(1, jobs=2), Wooden(2, jobs=1), Wooden(3, jobs=2)]
    office = Office(reactor, *children)
    office.scaler.note(IDLE)
    assert [child.is_leaving for child in children] == [False, True, False]
    assert children[1].sent == [SetQuiet(True)]
    assert office.count_requests(reactor) > 0
    assert not children[1].is_retiring, "its job still runs"
    children[1].table.vacate(0)
    reactor.wait()
    assert children[1].sent == [SetQuiet(True), DrainChild()]
    assert (children[1].is_patient, office.started) == (True, 0)


def test_an_idle_child_retires_at_once_and_one_that_loads_the_app_stays(reactor: Reactor) -> None:
    children = [Wooden(1, jobs=1), Wooden(2), Wooden(3, session="")]
    Office(reactor, *children).scaler.note(IDLE)
    assert [child.is_retiring for child in children] == [False, True, False]


def test_children_that_leave_come_back_before_others_start(reactor: Reactor) -> None:
    children = [Wooden(1, jobs=4), Wooden(2, jobs=4)]
    children[1].is_leaving = True
    office = Office(reactor, *children)
    office.scaler.note(BACKLOG)
    assert children[1].sent == [SetQuiet(False)]
    assert not children[1].is_leaving
    assert office.started == 2, "from 1 to 4"


def test_children_that_start_soon_are_counted(reactor: Reactor) -> None:
    office = Office(reactor, Wooden(1, jobs=4))
    office.coming = 2
    office.scaler.note(BACKLOG)
    assert office.started == 1, "from 3 to 4"


def test_children_that_run_alone_or_retire_are_not_counted(reactor: Reactor) -> None:
    children = [Wooden(1, jobs=4), Wooden(2), Wooden(3)]
    children[1].is_solo = children[2].is_retiring = True
    office = Office(reactor, *children)
    office.scaler.note(BACKLOG)
    assert office.started == 3, "from 1 to 4"


def test_a_held_worker_neither_asks_nor_scales(reactor: Reactor) -> None:
    office = Office(reactor, Wooden(1, jobs=4), Wooden(2, jobs=4))
    office.is_held = True
    office.scaler.note(BACKLOG)
    assert (office.started, office.count_requests(reactor)) == (0, 0)


@pytest.mark.parametrize(
    ("jobs", "asks"),
    [([0], False), ([3], False), ([4], True), ([0, 0], True), ([4] * 3, True), ([4] * 4, False)],
)
def test_a_worker_asks_only_if_it_may_scale(reactor: Reactor, jobs: list[int], asks: bool) -> None:
    office = Office(reactor, *(Wooden(pid, jobs=number) for pid, number in enumerate(jobs)))
    assert (office.count_requests(reactor) > 0) is asks
