"""The parts that run jobs in one process, put together: pump, line, runners."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from windlass.app import Windlass
from windlass.engine.contract import Engine
from windlass.worker.fetch.adoption import Adoption
from windlass.worker.fetch.fetcher import Pump
from windlass.worker.fetch.nonces import Nonces
from windlass.worker.fetch.queue_turns import Rota
from windlass.worker.fetch.round_trip import Owner
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.ipc.wake_socket import WakeReceiver
from windlass.worker.run.lease import Lease
from windlass.worker.run.pipeline import Execution
from windlass.worker.run.prefetch import Pace
from windlass.worker.run.runners import LoopRunner, Runner, ThreadRunner
from windlass.worker.run.slot_queue import Line
from windlass.worker.run.timeouts import Limits


class Crew(NamedTuple):
    pump: Pump
    line: Line
    limits: Limits
    runners: tuple[Runner, ...]


def assemble(
    app: Windlass,
    engine: Engine,
    rota: Rota,
    table: SlotTable,
    owner: Owner,
    state: object,
    on_limited: Callable[[], None],
    wakes: WakeReceiver,
) -> Crew:
    """To be called on the event loop that is to run coroutines. The pump is not started. `state` is
    what the lifespan gave; `on_limited` is called before the first job with a limit, and
    `wakes` is where an idle pump is woken."""
    settings, is_solo = app.settings, rota.plan.suspects
    lease = Lease(table, settings.lease_ms, is_solo=is_solo)
    line, pace = Line(table.slots, lease), Pace()
    adoption = Adoption(engine, app.known_tasks)
    tasks, nonces = app.known_tasks, Nonces(table)
    pump = Pump(engine, rota, line, lease, nonces, pace, tasks, adoption, owner, wakes)
    execution = Execution(
        settings, pump.report_progress, adoption.leave, app.middleware, state, app.packing
    )
    limits = Limits(table, settings.kill_after_ms, on_limited, is_solo=is_solo)
    kinds = (ThreadRunner, LoopRunner)
    runners = tuple(kind(line, table, limits, execution, pace, pump.report) for kind in kinds)
    return Crew(pump, line, limits, runners)
