"""A fetcher with real runners and a real engine, and a child that owns it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import NoReturn, cast

from tests.worker.faulty import Faulty
from tests.worker.yard import until
from windlass.app import Windlass
from windlass.core.states import State
from windlass.engine.contract import (
    Capability,
    Engine,
    EngineOptions,
    JobRecord,
    Plan,
    Waiter,
)
from windlass.engine.url import open_engine
from windlass.worker.fetch.fetcher import Fetcher
from windlass.worker.fetch.queue_turns import QueueTurns
from windlass.worker.ipc.channel import RunsMeasured
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.ipc.wake_socket import WakeReceiver, open_wake_pair
from windlass.worker.run.end_log import EndLog
from windlass.worker.run.pipeline import Execution
from windlass.worker.run.runners import ThreadRunner
from windlass.worker.run.slot_queue import Lease, Prefetch, SlotQueue
from windlass.worker.run.timeouts import Limits
from windlass.worker.supervisor.waiter import WorkerWaiter

SLOTS = 4


class ProcessEnd(BaseException):
    """Raised to end the thread of a fetcher, where a child would end its process."""


class Rig:
    """A fetcher with runners, and the child that owns it. With `is_handed_jobs` the fetcher gives
    the waiter a nonce, under which only a test claims. Without `waits` there is no waiter."""

    def __init__(self, folder: Path, *, is_handed_jobs: bool, waits: bool = True) -> None:
        self.app = Windlass(f"sqlite:///{folder / 'jobs.db'}")
        self.engine = self.app.engine
        self.faulty = Faulty(self.engine)
        if is_handed_jobs:
            self.faulty.capabilities = self.engine.capabilities | {Capability.HANDOFF}
        self.wakes, woken = open_wake_pair()
        self.woken = WakeReceiver(woken)
        options = EngineOptions(lease_ms=30_000, dead_ttl_ms=60_000)
        waiting = open_engine(self.app.settings.url, options)
        self.waiter = WorkerWaiter(waiting)
        self.waits = waits
        self.measured: list[RunsMeasured] = []
        self.rests: list[str | None] = []  # reports of the fetcher to the waiter
        self.waiter.start()
        self.starts: list[int] = []
        self.gate = Event()
        self.gate.set()
        self.task = self.app.task(name="note")(self._make_task())
        self.table = SlotTable.create(SLOTS)
        self.prefetch = Prefetch()
        self.sessions: list[str] = []
        self.ended = Event()
        self.saw_suspects = Event()

    def _make_task(self) -> Callable[[int], int]:
        def note(number: int) -> int:
            self.starts.append(number)
            assert self.gate.wait(20)
            return number

        return note

    def start(self, plan: Plan = Plan()) -> Fetcher:  # noqa: B008  # a plan is never changed
        slot_queue = SlotQueue(Lease(self.table, 30_000))
        slot_queue.prefetch = self.prefetch
        engine, queue_turns = (
            cast(Engine, self.faulty),
            QueueTurns(plan.queues, is_solo=plan.suspects),
        )
        self.plan = queue_turns.plan
        limits = Limits(self.table, 1_000, lambda: None, is_solo=False)
        fetcher = Fetcher(engine, queue_turns, slot_queue, limits, self.app.tasks, self, self.woken)
        self.fetcher = fetcher
        execution = Execution(self.app.settings, fetcher.report_progress, fetcher.leave_task)
        ThreadRunner(slot_queue, limits, execution, fetcher.report, EndLog(), fetcher.measures)
        self.thread = Thread(target=self._run_fetcher, daemon=True)
        self.thread.start()
        return self.fetcher

    def _run_fetcher(self) -> None:
        with suppress(ProcessEnd):
            self.fetcher.run()

    # What a child does for its fetcher.

    def new_session(self) -> str:
        self.sessions.append(f"session-{len(self.sessions)}")
        return self.sessions[-1]

    def report_measures(self, measured: RunsMeasured) -> None:
        self.measured.append(measured)

    def rest(self, session: str, nonce: str | None) -> None:
        self.rests.append(nonce)
        if nonce is None:
            self.waiter.leave(session)
        elif self.waits:
            self.waiter.rest(self, Waiter(session, self.plan, nonce))

    def is_running(self) -> bool:
        return True

    def see_suspects(self) -> None:
        self.saw_suspects.set()

    def end(self) -> None:
        self.ended.set()

    def end_at_once(self) -> NoReturn:
        self.ended.set()
        raise ProcessEnd

    # What a test looks at.

    def record(self, job_id: str) -> JobRecord:
        [record] = self.engine.get([job_id])
        assert record is not None
        return record

    def await_state(self, job_id: str, state: State) -> JobRecord:
        until(lambda: self.record(job_id).state is state, f"{state}: {self.record(job_id)}")
        return self.record(job_id)

    def end_fetcher(self) -> None:
        self.fetcher.drain()
        self.thread.join(10)
        assert not self.thread.is_alive()
        assert self.table.nonces.read() == []
        self.ended.clear()

    def close(self) -> None:
        self.faulty.faults.clear()
        self.gate.set()
        self.end_fetcher()
        self.waiter.stop(10)
        self.wakes.close()
        self.woken.close()
        problems = self.engine.check()
        self.app.close()
        assert problems == []
