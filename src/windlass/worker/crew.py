"""The parts that run jobs in one process, put together: pump, line, runners."""

from __future__ import annotations

from typing import NamedTuple

from windlass.app import Windlass
from windlass.engine.contract import Engine, Plan
from windlass.worker.adoption import Adoption
from windlass.worker.execution import Execution
from windlass.worker.lease import Lease
from windlass.worker.line import Line
from windlass.worker.nonces import Nonces
from windlass.worker.pace import Pace
from windlass.worker.pump import Owner, Pump
from windlass.worker.runners import LoopRunner, Runner, ThreadRunner
from windlass.worker.slots import SlotTable


class Crew(NamedTuple):
    pump: Pump
    runners: tuple[Runner, ...]


def assemble(
    app: Windlass, engine: Engine, plan: Plan, table: SlotTable, owner: Owner, state: object
) -> Crew:
    """To be called on the event loop that is to run coroutines. The pump is not started."""
    lease = Lease(table, app.settings.lease_ms)
    line, pace = Line(table.slots, lease), Pace()
    adoption = Adoption(engine, app.tasks)
    pump = Pump(engine, plan, line, lease, Nonces(table), pace, app.tasks, adoption, owner)
    execution = Execution(app.settings, pump.report_progress, adoption.leave, app.middleware, state)
    kinds = (ThreadRunner, LoopRunner)
    runners = tuple(kind(line, table, execution, pace, pump.report) for kind in kinds)
    return Crew(pump, runners)
