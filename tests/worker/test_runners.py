"""The two runners with a line of claims that are followed up in the same slot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from time import monotonic
from typing import Any

import msgspec

from windlass.app import Windlass
from windlass.core.envelope import Envelope, pack
from windlass.core.states import Counters
from windlass.engine.contract import Claim, Outcome, Succeeded
from windlass.task import Task
from windlass.worker.execution import Execution
from windlass.worker.lease import Lease
from windlass.worker.line import Line
from windlass.worker.pace import Pace
from windlass.worker.runners import LoopRunner, ThreadRunner
from windlass.worker.slots import SlotTable

left_behind: ContextVar[str] = ContextVar("left_behind", default="nothing")
found: list[tuple[str, list[str]]] = []
table = SlotTable.create(1)


def look(name: str) -> None:
    found.append((left_behind.get(), table.occupied()))
    left_behind.set(name)


async def look_async(name: str) -> None:
    look(name)


def claim_of(task: Task[..., Any], name: str) -> Claim:
    call = msgspec.Raw(task.codec.encode((name,), {}))
    return Claim(
        id=name,
        token="nonce",
        task=task.name,
        queue="default",
        priority=0,
        payload=pack(Envelope(task=task.name, call=call)),
        counters=Counters(attempt=1, starts=1),
        created_ms=0,
    )


async def run_all(function: Callable[..., Any], names: list[str]) -> list[Outcome]:
    """Offer all claims at once to a single slot, and wait for their outcomes."""
    app = Windlass("sqlite:///:memory:")
    task: Task[..., Any] = app.task(name="look")(function)
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    outcomes: list[Outcome] = []

    def report(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if len(outcomes) == len(names):
            loop.call_soon_threadsafe(done.set)

    lease = Lease(table, 30_000)
    lease.confirm(monotonic())
    line = Line(1, lease)
    execution = Execution(app.settings, lambda claim, progress: None)
    for runner in (ThreadRunner, LoopRunner):
        runner(line, table, execution, Pace(), report)
    line.offer([(claim_of(task, name), task) for name in names])
    await asyncio.wait_for(done.wait(), 20)
    return outcomes


def check(function: Callable[..., Any]) -> None:
    found.clear()
    names = ["first", "second", "third"]
    outcomes = asyncio.run(run_all(function, names))
    assert [type(outcome) for outcome in outcomes] == [Succeeded] * 3
    assert [outcome.id for outcome in outcomes] == names
    # Each job found itself in the slot table, and nothing that another had left behind.
    assert found == [("nothing", [name]) for name in names]
    assert table.occupied() == []


def test_jobs_that_follow_each_other_in_a_thread_share_nothing() -> None:
    check(look)


def test_jobs_that_follow_each_other_on_the_loop_share_nothing() -> None:
    check(look_async)
