"""The watchdogs of a child: in whole workers, and each part alone."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from itertools import count
from logging import WARNING
from pathlib import Path
from typing import Any, cast

import pytest

from tests.soon import is_once
from tests.worker.yard import Yard, until
from windlass.app import Windlass
from windlass.context import Context, running
from windlass.core.states import Counters, State
from windlass.engine.contract import Claim, Engine, EngineOptions, Plan, Waiter
from windlass.engine.url import open_engine
from windlass.worker.child import watchdog
from windlass.worker.child.watchdog import FetchWatchdog, LoopWatchdog, Watchdog
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.run.end_log import EndLog
from windlass.worker.run.slot_queue import JobKind, Lease, SlotQueue
from windlass.worker.run.timeouts import Limits
from windlass.worker.supervisor import child_health
from windlass.worker.supervisor.child_health import ChildHealth, Recycling
from windlass.worker.supervisor.child_process import ChildProcess
from windlass.worker.supervisor.reactor import Reactor

# -------------------------------------------------------------------------------- whole workers


@pytest.mark.local
def test_a_coroutine_that_blocks_the_loop_is_named_within_two_seconds(yard: Yard) -> None:
    worker = yard.start()
    numbers = count()

    def is_named_soon() -> bool:
        label = f"blocker{next(numbers)}"
        gate = yard.folder / label
        job = yard.coroutine(label, f"await:{gate}")
        yard.await_start(label)
        started_at = time.monotonic()
        told = f"job {job.id} of task coroutine has blocked the event loop"
        worker.await_log(told)
        took_s = time.monotonic() - started_at
        gate.touch()
        assert job.result(timeout=20) == f"{label} done"
        assert worker.log().count(told) == 1
        return took_s < 2

    assert is_once(is_named_soon)
    assert re.search(r"in await_file\n +time\.sleep\(0\.01\)", worker.log())


@pytest.mark.local
def test_a_job_that_runs_for_very_long_is_reported_once(yard: Yard) -> None:
    gate = yard.folder / "gate"
    worker = yard.start(app="tests.worker.apps.hasty:app")
    told = "of task plain has been running for longer than 300ms without a time-out, since 2"
    yard.script.plain.using(timeout="60s").enqueue("bounded", [f"await:{gate}"])
    yard.await_start("bounded")
    jobs = []
    for label in ("first", "second", "third"):  # each is there for another look at those before it
        jobs.append(yard.plain(label, f"await:{gate}"))
        worker.await_log(f"job {jobs[-1].id} {told}")
    gate.touch()
    assert jobs[-1].result(timeout=20) == "third done"
    assert worker.log().count(told) == len(jobs)


@pytest.mark.local
def test_the_jobs_of_a_child_whose_fetcher_is_gone_go_on(yard: Yard) -> None:
    worker = yard.start()
    job = yard.plain("saboteur", f"end_fetcher:{yard.folder / 'flag'}", "sleep:0.1")
    first = yard.await_start("saboteur").pid
    assert job.result(timeout=20) == "saboteur done"
    worker.await_log(f"child {first} stopped reporting: its fetcher thread has ended")
    second = yard.await_start("saboteur", 2).pid
    assert first != second
    counters = yard.record(job).counters
    assert (counters.crashes, counters.losses, counters.interruptions) == (0, 0, 1)


@pytest.mark.slow
def test_a_child_that_does_not_run_python_is_told_of_and_kept(yard: Yard) -> None:
    worker = yard.start()
    job = yard.plain("holder", f"hold:{child_health.SILENT_S + 3}")
    child = yard.await_start("holder").pid
    assert job.result(timeout=30) == "holder done"
    told = f"child {child} has not run Python for"
    assert worker.log().count(told) == 1
    assert f"holds the interpreter; running: {job.id}" in worker.log()
    assert len(yard.events("start")) == 1
    yard.await_state(yard.plain("after"), State.SUCCEEDED)
    assert worker.children() == [child]


# ------------------------------------------------------------------------------- the event loop


class Loop:
    """An event loop in a thread, and its watchdog."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        self._log = log
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.watch = self.do(make_watch()).result(10)

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        self.do(let_all_end()).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def look(self, times: int = 1, *, is_punctual: bool = True) -> list[str]:
        """The lines logged so far."""
        for _ in range(times):
            self.watch.look(is_punctual=is_punctual)
        return [record.getMessage() for record in self._log.records]


async def let_all_end() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


async def make_watch() -> LoopWatchdog:
    return LoopWatchdog()


@pytest.fixture
def loop(caplog: pytest.LogCaptureFixture) -> Iterator[Loop]:
    with caplog.at_level(WARNING, "windlass.worker"):
        loop = Loop(caplog)
        yield loop
        loop.close()


@pytest.fixture
def block() -> Iterator[Callable[[], None]]:
    """Something that blocks until the test is over."""
    over = threading.Event()
    yield lambda: cast(None, over.wait(20))
    over.set()


def context(job_id: str) -> Context:
    return Context(
        job_id=job_id, task="t", queue="q", attempt=1, max_attempts=1, sink=lambda progress: None
    )


def test_the_job_is_known_in_what_it_has_started_beside_itself(
    loop: Loop, block: Callable[[], None]
) -> None:
    started = threading.Event()

    async def companion() -> None:
        started.set()
        block()

    async def job() -> None:
        running.set(context("j"))
        await asyncio.gather(asyncio.sleep(0), companion())

    loop.do(job())
    assert started.wait(10)
    [told] = loop.look(3)
    assert told.startswith("job j of task t has blocked the event loop")
    assert "in companion\n    block()" in told


def test_it_is_told_once_for_each_time(loop: Loop) -> None:
    gates = [threading.Event(), threading.Event()]
    for number, gate in enumerate(gates, 1):
        started = threading.Event()

        async def job(started: threading.Event = started, gate: threading.Event = gate) -> None:
            started.set()
            gate.wait(20)

        loop.do(job())
        assert started.wait(10)
        assert len(loop.look(5)) == number
        gate.set()
        loop.do(asyncio.sleep(0)).result(10)  # behind it
    assert "code of no job" in loop.look()[0]


def test_a_loop_that_rests_blocks_nobody(loop: Loop) -> None:
    for _ in range(5):
        assert loop.look() == []
        loop.do(asyncio.sleep(0)).result(10)


def test_a_loop_with_very_much_to_do_is_not_blocked(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sign has to wait for long, and yet no step is a long one."""
    monkeypatch.setattr("windlass.worker.child.watchdog.CONFIRM_S", 0.05)
    started = threading.Event()

    async def short() -> None:
        started.set()
        time.sleep(0.01)  # noqa: ASYNC251  # a step of some length

    async def many() -> None:
        await asyncio.gather(*(short() for _ in range(60)))

    done = loop.do(many())
    assert started.wait(10)
    assert loop.look(5) == []
    done.result(20)


def test_whoever_comes_late_accuses_nobody(loop: Loop, block: Callable[[], None]) -> None:
    started = threading.Event()

    async def job() -> None:
        started.set()
        block()

    loop.do(job())
    assert started.wait(10)
    assert loop.look(3, is_punctual=False) == []
    assert len(loop.look()) == 1


# ------------------------------------------------------------------------------------- the fetcher


class Fetcher:
    """A stuck thread and its watchdog."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.rounds = 0
        self.acts_in: int | None = None
        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()
        self.watch = FetchWatchdog(self.thread, self)

    def look(self, seconds: float, *, is_punctual: bool = True) -> str | None:
        return self.watch.look(seconds, is_punctual=is_punctual)


def test_free_slots_are_made_use_of_while_the_fetcher_waits_for_the_engine() -> None:
    """One thread takes all of many short jobs; then one job is slow, and the fetcher waits."""
    table = SlotTable.create(2)
    lease = Lease(table, 30_000)
    lease.confirm(time.monotonic())
    slot_queue = SlotQueue(lease)
    hints: list[int] = []
    slot_queue.serve(JobKind.THREAD, hints.append)
    task = Windlass("sqlite:///:memory:").task(name="plain")(_plain)
    slot_queue.offer([(_claim(f"{n}"), task) for n in range(4)])
    assert slot_queue.begin(JobKind.THREAD) is not None
    assert hints == [1]
    limits = Limits(table, 1_000, lambda: None, is_solo=False)
    loop, fetcher = cast(LoopWatchdog, Blind()), cast(FetchWatchdog, Blind())
    Watchdog(slot_queue, limits, loop, fetcher, EndLog(), lambda _: None).look(
        0.5, is_punctual=True
    )
    assert hints == [1, 1]


class Blind:
    """Finds nothing."""

    def look(self, *_: object, is_punctual: bool) -> None: ...


def _plain() -> None: ...


def _claim(id: str) -> Claim:
    return Claim(
        id=id,
        token="",
        task="plain",
        queue="",
        priority=0,
        payload=b"",
        counters=Counters(),
        created_ms=0,
    )


def test_a_fetcher_that_stands_still_although_it_could_go_on_is_told_of_once(
    block: Callable[[], None],
) -> None:
    fetcher = Fetcher(block)
    assert fetcher.look(1) is None
    assert fetcher.look(watchdog.WEDGED_S) is None
    text = fetcher.look(1)
    assert text is not None
    assert "its fetcher is stuck in\n" in text
    assert "over.wait(20)" in text
    assert fetcher.look(1000) is None


def test_a_fetcher_that_goes_round_is_not(block: Callable[[], None]) -> None:
    fetcher = Fetcher(block)
    for _ in range(5):
        fetcher.rounds += 1
        assert fetcher.look(watchdog.WEDGED_S + 1) is None


def test_time_in_which_the_interpreter_was_kept_from_others_does_not_count(
    block: Callable[[], None],
) -> None:
    fetcher = Fetcher(block)
    for _ in range(5):
        assert fetcher.look(watchdog.WEDGED_S * 10, is_punctual=False) is None
        assert fetcher.look(watchdog.WEDGED_S - 1) is None


def _wait(engine: Engine) -> None:
    engine.wait([Waiter("worker", Plan())], 20_000)


def test_a_call_of_the_engine_may_take_as_long_as_it_takes(tmp_path: Path) -> None:
    engine = open_engine(
        f"sqlite:///{tmp_path / 'jobs.db'}", EngineOptions(lease_ms=1000, dead_ttl_ms=1000)
    )
    try:
        fetcher = Fetcher(lambda: _wait(engine))
        until(lambda: watchdog._is_in_engine(fetcher.watch._frame()), "the call")
        for _ in range(5):
            assert fetcher.look(watchdog.WEDGED_S * 10) is None
        while fetcher.thread.is_alive():
            engine.nudge()
            fetcher.thread.join(0.01)
    finally:
        engine.shutdown()


def test_a_fetcher_whose_thread_has_ended_is_told_of_at_once() -> None:
    fetcher = Fetcher(lambda: None)
    fetcher.thread.join()
    assert fetcher.look(0) == "its fetcher thread has ended"


# ------------------------------------------------------------------------------- the supervisor


class Wooden:
    def __init__(self) -> None:
        self.pid = 1
        self.is_retiring = False
        self.runs = True
        self.table = SlotTable.create(1)
        self.table.occupy(0, "job")

    def is_running(self) -> bool:
        return self.runs


class Idle:
    def look(self, children: object) -> None:
        """Recycle no child."""


def test_a_child_that_does_not_run_python_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    child = Wooden()
    idle, children = cast(Recycling, Idle()), [cast(ChildProcess, child)]
    with Reactor([]) as reactor:
        sight = ChildHealth(reactor, idle, living=lambda: children)

    def told(ago_s: float | None, *, runs: bool = True) -> int:
        child.runs = runs
        child.table.note_pulse(0.0 if ago_s is None else time.monotonic() - ago_s, 0)
        with caplog.at_level(WARNING, "windlass.worker"):
            sight.look()
        return len(caplog.records)

    assert told(None) == 0, "it has never noted a pulse"
    assert told(child_health.SILENT_S - 1) == 0
    assert told(child_health.SILENT_S + 1, runs=False) == 0, "a signal has stopped it"
    assert told(child_health.SILENT_S + 1) == told(child_health.SILENT_S + 2) == 1
    assert "child 1 has not run Python for 6 s" in caplog.records[0].getMessage()
    assert caplog.records[0].getMessage().endswith("running: job")
    assert told(0) == 1
    assert told(child_health.SILENT_S + 1) == 2
    child.table.close_descriptor()
