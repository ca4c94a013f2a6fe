"""Assembles the parts that run jobs in one process: fetcher, slot queue, runners."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from windlass.app import Windlass
from windlass.engine.contract import Engine
from windlass.worker.fetch.fetcher import Fetcher, Owner
from windlass.worker.fetch.queue_turns import QueueTurns
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.ipc.wake_socket import WakeReceiver
from windlass.worker.run.pipeline import Execution
from windlass.worker.run.runners import LoopRunner, Runner, ThreadRunner
from windlass.worker.run.slot_queue import Lease, SlotQueue
from windlass.worker.run.timeouts import Limits


class Assembly(NamedTuple):
    """The parts of one process that runs jobs."""

    fetcher: Fetcher
    slot_queue: SlotQueue
    limits: Limits
    runners: tuple[Runner, ...]


def assemble(
    app: Windlass,
    engine: Engine,
    queue_turns: QueueTurns,
    table: SlotTable,
    owner: Owner,
    state: object,
    on_limited: Callable[[], None],
    wakes: WakeReceiver,
) -> Assembly:
    """Create the parts, without starting the fetcher. Call this on the event loop that runs
    coroutines. `state` is the value of the lifespan, `on_limited` is called before the first job
    with a limit, and `wakes` wakes an idle fetcher."""
    settings, is_solo = app.settings, queue_turns.plan.suspects
    slot_queue = SlotQueue(Lease(table, settings.lease_ms, is_solo=is_solo))
    fetcher = Fetcher(engine, queue_turns, slot_queue, app.known_tasks, owner, wakes)
    execution = Execution(
        settings, fetcher.report_progress, fetcher.leave_task, app.middleware, state, app.packing
    )
    limits = Limits(table, settings.kill_after_ms, on_limited, is_solo=is_solo)
    kinds = (ThreadRunner, LoopRunner)
    runners = tuple(kind(slot_queue, limits, execution, fetcher.report) for kind in kinds)
    return Assembly(fetcher, slot_queue, limits, runners)
