"""A source with jobs, keys, schedules and settings of every kind, and looks at both sides."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from windlass.core.schedules import state as schedule_state
from windlass.core.schedules.state import Note, ScheduleEntry
from windlass.core.schedules.triggers import Every
from windlass.core.states import Reason, State
from windlass.core.unique import Until
from windlass.engine import schedule_changes
from windlass.engine.contract import (
    Buried,
    Claim,
    Engine,
    Filter,
    JobRecord,
    NewStep,
    Outcome,
    Plan,
    Progressed,
    QueueChange,
    Released,
    Retried,
    Revival,
    Step,
    Succeeded,
    UniqueKey,
    Unroutable,
)
from windlass.engine_copy.jobs import COPIED
from windlass.testing.contract.machine import all_pages
from windlass.testing.contract.world import World, claim_jobs

DAY_MS: Final = 24 * 60 * 60 * 1000
PERIOD_MS: Final = 60_000


def fill(world: World, number: int = 3) -> None:
    """Put jobs of every kind, `number` of each of the plain kinds."""
    engine = world.engine
    engine.change_queue("aged", QueueChange(ageing_ms=PERIOD_MS))
    world.put(queue="aged")
    world.advance(3 * PERIOD_MS)
    world.put(queue="aged", priority=2)
    engine.change_queue("bound", QueueChange(max_waiting=1))
    world.put(queue="bound")
    engine.change_queue("shut", QueueChange(paused=True))
    world.put(queue="shut", payload=b"\0" * 3_000)
    _settle(world, lambda id, token: Unroutable(id=id, token=token, why=b"unknown"))
    _settle(world, lambda id, token: Retried(id=id, token=token, delay_ms=DAY_MS, error=b"boom"))
    _settle(world, lambda id, token: Released(id=id, token=token, started=True, alone=True))
    _settle(world, _bury, unique=UniqueKey(key="dead", until=Until.SUCCESS))
    done = _settle(world, lambda id, token: Succeeded(id=id, token=token), idempotency_key="done")
    assert world.get(done).state is State.SUCCEEDED
    period = UniqueKey(key="period", period_ms=DAY_MS)
    _settle(world, lambda id, token: Succeeded(id=id, token=token), unique=period)
    world.engine.cancel([world.put(unique=UniqueKey(key="other period", period_ms=DAY_MS))])
    world.put(queue="held", task="paused")
    engine.pause_task("paused")
    assert not world.claim(queues=("held",)).claims
    for at in range(number):
        world.put(queue="mail+gpu", priority=at % 3, expires_in_ms=9 * DAY_MS)
        world.put(run_in_ms=DAY_MS + at, idempotency_key=f"key {at}", fingerprint="f")
        world.put(unique=UniqueKey(key=f"key {at}"), idempotency_key="own")
        _settle(world, _bury)
    save_schedule(engine, "hourly")
    save_schedule(engine, "stopped", is_paused=True)


def _bury(id: str, token: str) -> Outcome:
    return Buried(id=id, token=token, reason=Reason.EXHAUSTED, error=b"no" * 99, fingerprint="ab")


def _settle(world: World, outcome: Any, **fields: Any) -> str:
    """Put a job and let it run once, with a step that is named after it."""
    id = world.put(queue="runs", **fields)
    plan, session = Plan(queues=("runs",)), f"worker-{world.nonce()}@v1"
    (claim,) = claim_jobs(world.engine, session, world.nonce(), plan, 1).claims
    step = Step(f"charge {id[12:]}", b"receipt")
    world.engine.put_steps([NewStep(id=id, token=claim.token, step=step)])
    world.finish(Progressed(id=id, token=claim.token, progress=b"half"))
    world.finish(outcome(id, claim.token))
    world.engine.close(session, [], "ended")
    world.engine.tend()
    return id


def save_schedule(engine: Engine, name: str, *, is_paused: bool = False) -> None:
    now_ms = engine.due_schedules(limit=1).now_ms
    every = Every("1h")
    entry = ScheduleEntry(schedule=every, task="task", queue="runs", envelope=b"{}")
    note = schedule_state.made(every, now_ms)
    if is_paused:
        note = schedule_state.paused(note)
    change = schedule_changes.enter(name, entry.pack(), note, now_ms)
    assert engine.change_schedules([change]) == [True]


# ------------------------------------------------------------------------------------ what is there


def jobs_of(engine: Engine) -> dict[str, JobRecord]:
    """The jobs that a copy must have, whole, as a target has them."""
    records = all_pages(engine, Filter(), 500)
    ids = [record.id for record in records if record.state in COPIED]
    return {record.id: record for record in engine.get(ids) if record is not None}


def completed_of(engine: Engine) -> list[Step]:
    """The completed steps of these jobs, by name."""
    copies = engine.read_copies(list(jobs_of(engine)))
    found = [step for copy in copies if copy is not None for step in copy.steps]
    return sorted(found, key=lambda step: step.name)


def numbers_of(engine: Engine) -> Counter[tuple[str, State]]:
    return Counter((record.queue, record.state) for record in jobs_of(engine).values())


def schedules_of(engine: Engine) -> dict[str, tuple[ScheduleEntry, Note]]:
    return {one.name: schedule_changes.read(one) for one in engine.list_schedules()}


def open_queues(engine: Engine) -> set[str]:
    paused = {record.queue for record in engine.queues() if record.paused}
    return {line.partition("+")[0] for line in engine.stats().queues} - paused


def run_all(world: World) -> Counter[str]:
    """Run all jobs of a place, also those that wait, are held, or are dead."""
    engine, ran = world.engine, Counter[str]()
    for task in engine.paused_tasks():
        while engine.resume_task(task):
            pass
    engine.adopt(["task"])
    dead = [record.id for record in all_pages(engine, Filter(state=State.DEAD), 500)]
    assert set(map(str, engine.revive([Revival(id=id) for id in dead]))) <= {"done"}
    world.advance(2 * DAY_MS)
    engine.tend()
    for suspects in (False, True):
        plan = Plan(labels=("gpu",), suspects=suspects)
        while claims := _claim(world, plan):
            ran.update(claim.id for claim in claims)
            engine.finish([Succeeded(id=one.id, token=one.token) for one in claims])
    return ran


def _claim(world: World, plan: Plan) -> tuple[Claim, ...]:
    return claim_jobs(world.engine, "runner", world.nonce(), plan, 100).claims
