"""The small parts of a worker: slot table, channel, slot queue, prefetch, nonces, options."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any

import pytest

from windlass.app import Windlass
from windlass.core.states import Counters
from windlass.engine.contract import Claim, Progressed, Released
from windlass.errors import SettingError
from windlass.task import Task
from windlass.worker.fetch.nonces import Nonces
from windlass.worker.ipc.channel import (
    MOST_UNSENT,
    Cancel,
    ChildSessionStarted,
    Command,
    DrainChild,
    SessionGone,
    join_pair,
    open_pair,
)
from windlass.worker.ipc.shared_memory import RECORD_BYTES, SlotTable
from windlass.worker.options import WorkerOptions
from windlass.worker.run.slot_queue import (
    MAX_LOOK_AHEAD,
    SAMPLE,
    JobKind,
    Lease,
    Prefetch,
    SlotQueue,
)
from windlass.worker.supervisor.child_process import ChildProcess, _is_stopped
from windlass.worker.supervisor.reactor import Reactor

LONGEST_ID = "x" * RECORD_BYTES


def test_a_slot_table_shows_what_another_process_wrote() -> None:
    table = SlotTable.create(3)
    code = (
        "import sys; from windlass.worker.ipc.shared_memory import SlotTable\n"
        "table = SlotTable.attach(int(sys.argv[1]), 3)\n"
        f"table.occupy(0, 'first'); table.occupy(2, {LONGEST_ID!r})\n"
        "table.occupy(1, 'gone'); table.vacate(1); table.nonces.write(4, 'nonce')\n"
        "table.confirm_beat(12.5)\n"
        "import os; os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", code, str(table.descriptor)]
    subprocess.run(command, pass_fds=[table.descriptor], check=False)
    assert table.occupied() == ["first", LONGEST_ID]
    assert table.nonces.read() == ["nonce"]
    assert table.confirmed_beat() == 12.5
    table.occupy(2, "short")
    assert table.occupied() == ["first", "short"]
    table.vacate_all()
    assert table.occupied() == []
    table.close_descriptor()


def test_a_channel_carries_whole_messages_both_ways() -> None:
    ours, theirs = open_pair()
    other = join_pair(theirs.detach())
    ours.send(DrainChild())
    ours.send(SessionGone("s"))
    assert other.receive() == [DrainChild(), SessionGone("s")]
    other.send(ChildSessionStarted("t"))
    assert ours.receive() == [ChildSessionStarted("t")]
    other.close()
    with pytest.raises(EOFError):
        ours.receive()
    ours.close()


def test_a_long_message_to_a_child_that_is_busy_is_not_cut() -> None:
    ours, theirs = open_pair()
    other = join_pair(theirs.detach())
    long = Cancel(tuple(f"{number:035}" for number in range(10_000)))
    found: list[Command] = []

    def read() -> None:
        while len(found) < 2:
            found.extend(other.receive())

    with Reactor([]) as reactor:
        reactor.watch(ours, lambda: None)
        ours.send(long)
        ours.send(DrainChild())
        assert ours.has_unsent
        reader = Thread(target=read)
        reader.start()
        while ours.has_unsent:
            reactor.await_room(ours, ours.flush)
            reactor.wait()
        reader.join()
    assert found == [long, DrainChild()]
    ours.close()
    other.close()


def test_a_child_that_does_not_read_never_holds_up_the_supervisor() -> None:
    ours, theirs = open_pair()
    other = join_pair(theirs.detach())
    note, sent = SessionGone("x" * 100_000), 0
    with suppress(BlockingIOError):
        while sent < 2 * MOST_UNSENT // 100_000:
            ours.send(note)
            sent += 1
    with pytest.raises(BlockingIOError):
        ours.send(SessionGone("x" * MOST_UNSENT))
    assert MOST_UNSENT - 100_000 < sent * 100_000 < 2 * MOST_UNSENT
    found: list[Command] = []
    while len(found) < sent:  # what was refused leaves no trace
        found += other.receive()
        ours.flush()
    assert found == [note] * sent
    ours.close()
    other.close()


def test_a_stopped_process_is_told_from_a_running_one() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert not _is_stopped(process.pid)
        process.send_signal(19)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert _is_stopped(process.pid)
    finally:
        process.kill()
        process.communicate()
    assert not _is_stopped(process.pid)


def test_a_child_that_cannot_be_started_leaves_no_descriptor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    gc.collect()  # what other tests left
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            ChildProcess(WorkerOptions("shop:app"), 0, is_solo=False)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("processes", lambda: WorkerOptions("shop:app", processes=0)),
        ("slots", lambda: WorkerOptions("shop:app", slots=0)),
    ],
)
def test_options_that_make_no_worker_are_refused(
    name: str, make: Callable[[], WorkerOptions]
) -> None:
    with pytest.raises(SettingError, match=f"at least 1 for {name}, found 0"):
        make()


# --------------------------------------------------------------------------------------------- pace


def test_there_is_no_look_ahead_before_enough_is_known() -> None:
    prefetch = Prefetch()
    for _ in range(SAMPLE - 1):
        prefetch.record(0.0001)
    assert prefetch.look_ahead(4, 0.0) == 0
    prefetch.record(0.0001)
    assert prefetch.look_ahead(4, 0.0) == MAX_LOOK_AHEAD


def test_look_ahead_is_a_moment_of_work() -> None:
    prefetch = Prefetch()
    for _ in range(SAMPLE):
        prefetch.record(0.004)
    assert prefetch.look_ahead(2, 0.0) == 37  # 75 ms of work for two slots


def test_a_job_that_had_to_wait_for_a_processor_does_not_end_it() -> None:
    prefetch = Prefetch()
    for _ in range(SAMPLE):
        prefetch.record(0.001)
    prefetch.record(0.02)
    assert prefetch.look_ahead(4, 0.0) > 200


def test_there_is_none_for_jobs_of_some_length() -> None:
    prefetch = Prefetch()
    for _ in range(SAMPLE):
        prefetch.record(0.006)
    assert prefetch.look_ahead(4, 0.0) == 0


@pytest.mark.parametrize(("latest", "running"), [(0.026, 0.0), (0.001, 0.026)])
def test_one_slow_job_ends_it(latest: float, running: float) -> None:
    prefetch = Prefetch()
    for _ in range(SAMPLE):
        prefetch.record(0.001)
    prefetch.record(latest)
    assert prefetch.look_ahead(4, running) == 0


# --------------------------------------------------------------------------------------------- line


class Ground:
    """A line with a lease that is held, and two tasks."""

    def __init__(self, slots: int) -> None:
        app = Windlass("sqlite:///:memory:")
        self.plain: Task[..., Any] = app.task(name="plain")(_plain)
        self.coroutine: Task[..., Any] = app.task(name="coroutine")(_coroutine)
        self.table = SlotTable.create(slots)
        self.lease = Lease(self.table, 1_000)
        self.lease.confirm(time.monotonic())
        self.slot_queue = SlotQueue(self.lease)
        self.hints: list[tuple[JobKind, int]] = []
        for kind in JobKind:
            self.slot_queue.serve(kind, partial(self._note_hint, kind))

    def _note_hint(self, kind: JobKind, count: int) -> None:
        self.hints.append((kind, count))

    def offer(self, *names: str) -> None:
        tasks = {"p": self.plain, "c": self.coroutine}
        self.slot_queue.offer([(_claim(name), tasks[name[0]]) for name in names])


def _plain() -> None: ...


async def _coroutine() -> None: ...


def _claim(name: str, token: str = "nonce") -> Claim:
    return Claim(
        id=name,
        token=token,
        task="",
        queue="",
        priority=0,
        payload=b"",
        counters=Counters(),
        created_ms=0,
    )


def test_slots_are_shared_by_both_kinds_and_the_first_in_line_gets_the_last_one() -> None:
    ground = Ground(slots=2)
    slot_queue = ground.slot_queue
    ground.offer("p1", "c1", "p2")
    assert ground.hints == [(JobKind.THREAD, 2), (JobKind.LOOP, 1)]
    first = slot_queue.begin(JobKind.THREAD)
    assert first is not None
    assert first.claim.id == "p1"
    # One slot is left, and the coroutine came first.
    assert slot_queue.begin(JobKind.THREAD) is None
    assert ground.hints[-1] == (JobKind.LOOP, 1)
    second = slot_queue.begin(JobKind.LOOP)
    assert second is not None
    assert slot_queue.begin(JobKind.THREAD) is None
    assert (slot_queue.busy(), slot_queue.in_hand(), slot_queue.room(is_ahead=False)) == (2, 3, -1)
    for _ in range(SAMPLE):
        slot_queue.prefetch.record(0.0)
    assert slot_queue.room(is_ahead=True) == MAX_LOOK_AHEAD - 1
    third = slot_queue.follow(JobKind.LOOP, second, time.monotonic())
    assert third is None
    assert ground.hints[-1] == (JobKind.THREAD, 1)
    third = slot_queue.begin(JobKind.THREAD)
    assert third is not None
    assert {claim.id for claim in slot_queue.running()} == {"p1", "p2"}


def test_what_waits_can_be_taken_back_and_what_runs_cannot() -> None:
    ground = Ground(slots=1)
    ground.offer("p1", "p2", "c1")
    started = ground.slot_queue.begin(JobKind.THREAD)
    assert started is not None
    assert ground.slot_queue.take_back(time.monotonic() - 10) == []
    taken = ground.slot_queue.take_back(time.monotonic())
    assert [claim.id for claim in taken] == ["p2", "c1"]
    assert ground.slot_queue.waiting_since() is None
    assert ground.slot_queue.follow(JobKind.THREAD, started, time.monotonic()) is None
    assert ground.slot_queue.in_hand() == 0


def test_what_waits_can_be_taken_out_by_name() -> None:
    ground = Ground(slots=1)
    ground.offer("p1", "p2", "p3", "c1")
    assert ground.slot_queue.begin(JobKind.THREAD) is not None
    taken = ground.slot_queue.take_out({"p1", "p2", "c1", "unknown"})
    assert [claim.id for claim in taken] == ["p2", "c1"]
    assert (ground.slot_queue.in_hand(), ground.slot_queue.take_out({"p2"})) == (2, [])


def test_of_many_short_jobs_one_thread_takes_all_until_it_is_stuck() -> None:
    ground = Ground(slots=3)
    ground.offer("p1", "p2", "p3", "p4", "c1")
    assert ground.hints == [(JobKind.THREAD, 1), (JobKind.LOOP, 1)]
    started = ground.slot_queue.begin(JobKind.THREAD)
    assert started is not None
    ground.hints.clear()
    ground.offer("p5")
    assert ground.hints == [(JobKind.LOOP, 1)], "a thread is at work, and takes the next by itself"
    assert ground.slot_queue.is_sparing()
    ground.hints.clear()
    ground.slot_queue.press()
    assert ground.hints == [(JobKind.THREAD, 2), (JobKind.LOOP, 1)]
    assert ground.slot_queue.follow(JobKind.THREAD, started, time.monotonic()) is not None


def test_a_coroutine_at_work_does_not_keep_threads_from_being_woken() -> None:
    ground = Ground(slots=2)
    ground.offer("c1")
    assert ground.slot_queue.begin(JobKind.LOOP) is not None
    ground.hints.clear()
    ground.offer("p1", "p2", "p3")
    assert ground.hints == [(JobKind.THREAD, 1)]


def test_nothing_starts_without_a_lease() -> None:
    ground = Ground(slots=2)
    ground.offer("p1")
    ground.lease.confirm(time.monotonic() - 0.81)
    assert ground.slot_queue.begin(JobKind.THREAD) is None
    ground.table.confirm_beat(time.monotonic() - 0.79)
    assert ground.slot_queue.begin(JobKind.THREAD) is not None


# ------------------------------------------------------------------------------------------- nonces


def test_a_nonce_is_known_from_before_its_claim_until_its_last_job_is_settled() -> None:
    table = SlotTable.create(2)
    nonces = Nonces(table)
    first = nonces.announce()
    assert table.nonces.read() == table.newest_nonce.read() == [first]
    nonces.begin(first, 2)
    nonces.end([Progressed(id="1", token=first, progress=b"")])
    nonces.end([Released(id="1", token=first, started=False)])
    assert table.nonces.read() == [first]
    nonces.end([Released(id="2", token=first, started=False)])
    assert table.nonces.read() == []
    second = nonces.announce()
    assert table.newest_nonce.read() == [second]
    assert first < second
    nonces.begin(second, 0)
    assert not nonces.are_held()


def test_a_nonce_whose_run_goes_on_stays_known_and_keeps_no_child_alive() -> None:
    table = SlotTable.create(1)
    nonces = Nonces(table)
    nonce = nonces.announce()
    nonces.begin(nonce, 2)
    nonces.keep(nonce)
    assert nonces.are_held()
    nonces.end([Released(id="other", token=nonce, started=False)])
    assert table.nonces.read() == [nonce]
    assert not nonces.are_held()
