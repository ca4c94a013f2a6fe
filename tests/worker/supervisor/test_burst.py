"""A worker that ends when nothing is left to do, on every engine."""

from __future__ import annotations

import pytest

from tests.worker.yard import Yard
from windlass.core.ids import new_id
from windlass.core.states import State
from windlass.engine.contract import NewJob
from windlass.worker.ipc.shared_memory import NEVER, SlotTable
from windlass.worker.supervisor.supervisor import is_burst_done


@pytest.mark.local
def test_it_runs_what_there_is_and_ends(yard: Yard) -> None:
    jobs = [yard.plain(f"job{number}", "sleep:0.05") for number in range(10)]
    jobs += [yard.coroutine("parent", "sleep:1.5", "enqueue:child")]
    later = yard.script.plain.using(run_after="1h").enqueue("later", [])
    [unknown] = [NewJob(id=new_id(1), task="not.here", queue="default", payload=b"{}")]
    yard.app.engine.put([unknown])
    worker = yard.start(burst=True, processes=2)
    assert worker.wait() == 0
    assert "stopping: nothing is left to do" in worker.log()
    assert {yard.record(job).state for job in jobs} == {State.SUCCEEDED}
    assert [line.label for line in yard.events("end", "child")] == ["child"]
    assert yard.record(later).state is State.SCHEDULED
    held = yard.record(unknown.id)
    assert held.state is State.READY
    assert b"task not.here has no code in the app of worker" in (held.held_because or b"")


@pytest.mark.slow
def test_it_waits_for_those_that_must_run_alone(yard: Yard) -> None:
    killer = yard.plain("killer", "die")
    worker = yard.start(burst=True)
    assert worker.wait() == 0
    assert yard.record(killer).state is State.DEAD
    assert len(yard.events("start", "killer")) == 3


@pytest.mark.local
def test_with_nothing_to_do_it_ends(yard: Yard) -> None:
    assert yard.start(burst=True).wait() == 0


@pytest.mark.parametrize(
    ("spans", "settled_at", "done"),
    [
        ([], 0, False),
        ([(0, 0)], 0, False),
        ([(1, 1)], 0, False),
        ([(1, 2)], 0, True),
        ([(1, 2)], 2, False),
        ([(1, 2)], NEVER, False),
        ([(1, 5), (4, 4)], 0, False),
        ([(1, 5), (4, 6)], 0, True),
        ([(1, 3), (4, 6)], 0, False),
        ([(1, 5), (0, 0)], 0, False),
    ],
)
def test_everybody_has_to_ask_again(
    spans: list[tuple[float, float]], settled_at: float, done: bool
) -> None:
    tables = [SlotTable.create(1) for _ in spans]
    for table, span in zip(tables, spans, strict=True):
        table.newest_nonce.write(0, "nonce")
        table.note_idle(*span)
    assert is_burst_done(tables, settled_at) is done
    assert is_burst_done([SlotTable.create(1), *tables], settled_at) is done, "one that never asked"
