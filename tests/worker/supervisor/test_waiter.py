"""The waiter of a worker: which children it wakes, and what it does when the engine fails."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import cast

import pytest

from tests.redis_server import private_server
from tests.soon import is_once
from tests.worker.faulty import Faulty, lose_request
from tests.worker.yard import Yard, until
from windlass import State
from windlass.engine.contract import Engine, EngineOptions, NewJob, Plan, Released, Waiter, WakeUp
from windlass.engine.url import open_engine
from windlass.engine.wakeup import POLL_FLOOR_MS
from windlass.testing.contract.world import claim_jobs
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.ipc.wake_socket import LOOK, WakeReceiver, open_wake_pair
from windlass.worker.supervisor import waiter as waiter_module
from windlass.worker.supervisor.waiter import WorkerWaiter


class Child:
    """An idle child, as the waiter sees it."""

    def __init__(self) -> None:
        self.table = SlotTable.create(1)
        self.table.close_descriptor()
        self.wakes, woken = open_wake_pair()
        self.woken = WakeReceiver(woken)
        self.runs = True

    def is_running(self) -> bool:
        return self.runs

    def close(self) -> None:
        self.wakes.close()
        self.woken.close()


class Office:
    """A waiter with one child on a file."""

    def __init__(self, folder: Path) -> None:
        options = EngineOptions(lease_ms=30_000, dead_ttl_ms=60_000)
        url = f"sqlite:///{folder / 'jobs.db'}"
        self.engine = open_engine(url, options)
        self.engine.migrate()
        self.faulty = Faulty(open_engine(url, options))
        self.saw_suspects = Event()
        self.waiter = WorkerWaiter(
            cast(Engine, self.faulty), Plan(suspects=True), self.saw_suspects.set
        )
        self.child = Child()

    def rest(self, session: str = "session") -> None:
        self.waiter.rest(self.child, Waiter(session, Plan(queues=("q",))))

    def put(self, id: str) -> None:
        self.engine.put([NewJob(id=id, task="t", queue="q", payload=b"")])

    def close(self) -> None:
        self.faulty.faults.clear()
        self.waiter.stop(10)
        self.child.close()
        self.engine.shutdown()


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    monkeypatch.setattr(waiter_module, "REMIND_S", 60.0)
    office = Office(tmp_path)
    office.waiter._remind_at = float("inf")
    office.waiter.start()
    yield office
    office.close()


def test_an_idle_child_is_woken_once(office: Office) -> None:
    office.rest()
    office.put("first")
    assert office.child.woken.receive(10) == LOOK
    office.put("second")
    assert office.child.woken.receive(0.2) is None  # until it says again that it is idle
    office.rest()
    assert office.child.woken.receive(10) == LOOK


def test_a_child_that_is_busy_is_not_woken(office: Office) -> None:
    office.rest()
    until(lambda: "wait" in office.faulty.calls, "a wait")
    office.waiter.leave("session")
    office.put("job")
    assert office.child.woken.receive(0.2) is None


def test_a_wake_up_of_a_child_that_left_goes_to_another_one(office: Office) -> None:
    second = Child()
    children = {"session": office.child, "second": second}
    left: list[Child] = []

    def lose_child(real: Callable[[], list[WakeUp]], _arguments: object) -> list[WakeUp]:
        woken = real()
        for wake_up in woken:
            office.waiter.leave(wake_up.session)
            left.append(children.pop(wake_up.session))
        return woken

    for session, child in children.items():
        office.waiter.rest(child, Waiter(session, Plan(queues=("q",))))
    until(lambda: office.faulty.calls.count("wait") > 2, "a wait for both")
    office.faulty.faults["wait"] = lose_child
    until(lambda: office.faulty.calls.count("wait") > 4, "a wait with the fault")
    office.put("job")
    until(lambda: left, "a wake-up")
    (other,) = children.values()
    assert other.woken.receive(10) == LOOK
    assert left[0].woken.receive(0.1) is None
    second.close()


def test_a_child_that_a_signal_stopped_is_not_waited_for(office: Office) -> None:
    office.child.runs = False
    office.rest()
    office.put("job")
    assert office.child.woken.receive(0.2) is None
    office.child.runs = True
    assert office.child.woken.receive(10) == LOOK


def test_an_idle_child_looks_by_itself_now_and_then(office: Office) -> None:
    office.waiter._remind_at = 0.0
    office.rest()
    assert office.child.woken.receive(10) == LOOK


def test_jobs_that_must_run_alone_wake_the_supervisor(office: Office) -> None:
    office.rest()
    office.put("job")
    assert claim_jobs(office.engine, "holder", "nonce", Plan(), 1).claims
    office.engine.finish([Released(id="job", token="nonce", started=False, alone=True)])
    assert office.saw_suspects.wait(10)


def test_while_the_worker_is_quiet_it_waits_for_no_child(office: Office) -> None:
    office.waiter.set_quiet(True)
    office.waiter._remind_at = 0.0
    office.rest()
    office.put("job")
    assert claim_jobs(office.engine, "holder", "nonce", Plan(), 1).claims
    office.engine.finish([Released(id="job", token="nonce", started=False, alone=True)])
    office.put("other")
    assert office.child.woken.receive(0.3) is None
    assert not office.saw_suspects.is_set()
    office.waiter.set_quiet(False)
    assert office.child.woken.receive(10) == LOOK
    assert office.saw_suspects.wait(10)


def test_a_wait_under_way_ends_when_the_worker_becomes_quiet(office: Office) -> None:
    def ends_at_once() -> bool:
        office.waiter.set_quiet(False)
        office.rest()
        waits = office.faulty.calls.count("wait")
        until(lambda: office.faulty.calls.count("wait") > waits, "a wait, which lasts a while")
        waits = office.faulty.calls.count("wait")
        office.waiter.set_quiet(True)
        time.sleep(POLL_FLOOR_MS / 1000 / 4)
        return office.faulty.calls.count("wait") > waits

    assert is_once(ends_at_once, tries=3)


def test_a_wake_up_for_a_quiet_worker_reaches_another_one_at_once(
    office: Office, tmp_path: Path
) -> None:
    """The put chooses one of the workers that wait, and the quiet one does not wait."""
    engine = open_engine(
        f"sqlite:///{tmp_path / 'jobs.db'}", EngineOptions(lease_ms=30_000, dead_ttl_ms=60_000)
    )
    waiter, child = WorkerWaiter(engine), Child()
    waiter._remind_at = float("inf")
    waiter.start()
    office.rest()
    waiter.rest(child, Waiter("other", Plan(queues=("q",))))
    office.waiter.set_quiet(True)
    until(lambda: waiter._idle and office.faulty.calls.count("wait") > 2, "both waits")
    late = 0
    for number in range(10):
        office.put(f"job-{number}")
        late += child.woken.receive(waiter_module.WAIT_S / 10) is None
        assert claim_jobs(office.engine, "other", f"nonce-{number}", Plan(), 1).claims
        waiter.rest(child, Waiter("other", Plan(queues=("q",))))
    assert late <= 1, "polling finds a job after half a second"
    waiter.stop(10)
    child.close()


def test_after_a_failure_of_the_engine_it_waits_again(office: Office) -> None:
    office.rest()
    office.faulty.faults["wait"] = lambda real, _arguments: lose_request(real)
    until(lambda: office.faulty.calls.count("wait") > 3, "some tries")
    waited_at = office.child.table.waited_at()
    office.put("job")
    assert office.child.woken.receive(0.2) is None
    assert office.child.table.waited_at() == waited_at  # so the child knows that it is alone
    office.faulty.faults.clear()
    assert office.child.woken.receive(10) == LOOK


def test_no_error_ends_it(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_real: object, _arguments: object) -> None:
        raise RuntimeError("a bug")

    office.faulty.faults["wait"] = fail
    office.rest()
    until(lambda: "waiter of the worker failed" in caplog.text, "a word about it")
    office.faulty.faults.clear()
    office.put("job")
    assert office.child.woken.receive(10) == LOOK


def test_a_worker_has_three_connections_and_two_for_each_child(tmp_path: Path) -> None:
    server = private_server()
    try:
        yard = Yard(tmp_path, "30s", "5s", 3, server.url())
        try:
            worker = yard.start(processes=2, slots=8)
            worker.await_log("ready")
            for number in range(200):
                yard.coroutine(f"job-{number}", "enqueue")
            yard.await_count(State.SUCCEEDED, 400)
            found: list[int] = []

            def all_are_connected() -> bool:  # the second child may have come too late for a job
                pids = [worker.pid, *worker.children()]
                found[:] = _connections_of(pids, server.port)
                return len(found) == 3 and 0 not in found

            until(all_are_connected, "both children")
            supervisor, *children = found
            assert supervisor <= 3
            assert all(number <= 2 for number in children)
        finally:
            yard.close()
    finally:
        server.end()


def _connections_of(pids: list[int], port: int) -> list[int]:
    """How many connections to a port each process has."""
    remote = f":{port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    inodes = {line.split()[9] for line in lines if line.split()[2].endswith(remote)}
    return [
        sum(_inode(link) in inodes for link in Path(f"/proc/{pid}/fd").iterdir()) for pid in pids
    ]


def _inode(link: Path) -> str | None:
    try:
        found = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
    except OSError:  # it was closed meanwhile
        return None
    return found[1] if found else None
