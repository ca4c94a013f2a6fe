"""Copies between engines: everything arrives once, whatever ends the copy on its way."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Final, cast

import apsw
import psycopg
import pytest
from msgspec.structs import replace

from tests.engine.conftest import repair_all
from tests.engine_copy.sides import (
    HookedEngine,
    KilledError,
    MortalEngines,
    Sides,
    moving,
    steps_of,
)
from tests.engine_copy.stock import (
    DAY_MS,
    PERIOD_MS,
    completed_of,
    fill,
    jobs_of,
    numbers_of,
    open_queues,
    run_all,
    save_schedule,
    schedules_of,
)
from tests.worker.yard import until
from windlass.client.connections.recognition import read_connection
from windlass.core.states import State
from windlass.core.unique import OnConflict
from windlass.engine.contract import (
    MIN_RECORD_MS,
    Beat,
    Engine,
    JobRecord,
    NewJob,
    Plan,
    PutCode,
    QueueChange,
    QueueRecord,
    Released,
    SessionCommand,
    Succeeded,
    UniqueKey,
    Unroutable,
    transaction_verbs,
)
from windlass.engine.url import open_engine
from windlass.engine_copy import jobs as walking
from windlass.engine_copy.copier import ComparedKind, Copier, CopyStep
from windlass.engine_copy.documents import Phase, StoredState
from windlass.engine_copy.jobs import LEAST_KEEP_MS, WALKS
from windlass.engine_copy.undo import undo
from windlass.errors import CopyRefused
from windlass.testing.contract.machine import all_holders, all_keys
from windlass.testing.contract.place import OPTIONS
from windlass.testing.contract.world import LEASE_MS, World, claim_jobs


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "PAGE", 3)
    monkeypatch.setattr(walking, "_FIRST_READ", 2)


#: What a copy does while jobs of the source run, and while transactions are open.
DRAINING: Final = "waiting for running jobs"
SETTLING: Final = "waiting for open transactions"
IDLE: Final = psycopg.pq.TransactionStatus.IDLE


def passes_in(steps: list[CopyStep]) -> int:
    """How often both sides were compared."""
    doings = [step.doing for step in steps]
    return sum(
        one == "comparing keys" and before != one
        for one, before in zip(doings, ["", *doings], strict=False)
    )


def phase_of(world: World) -> Phase | None:
    stored = StoredState.load(world.engine)
    return None if stored is None else stored.state.phase


def claimed(world: World) -> list[str]:
    return [claim.id for claim in world.claim().claims]


def without_partitions(jobs: dict[str, JobRecord]) -> dict[str, JobRecord]:
    """Jobs by the parts of their ids that another partition does not change."""
    return {id[:10] + id[12:]: replace(record, id="") for id, record in jobs.items()}


# -------------------------------------------------------------------------------------- everything


def test_everything_arrives_as_it_is(sides: Sides) -> None:
    fill(sides.source)
    sides.meet()
    source, target = sides.source.engine, sides.target.engine
    before, numbers = jobs_of(source), numbers_of(source)
    steps = completed_of(source)
    schedules, keys = schedules_of(source), all_keys(source)
    report = sides.copy()
    assert (report.is_complete, report.copied) == (True, len(before))
    kinds = {(one.queue, one.state): (one.source, one.target) for one in report.jobs}
    lines = Counter[tuple[str, State]]()
    for (line, state), number in numbers.items():
        lines[line.partition("+")[0], state] += number
    assert kinds == {kind: (number, number) for kind, number in lines.items()}
    assert without_partitions(jobs_of(target)) == without_partitions(before)
    assert completed_of(target) == steps != []
    assert len(all_holders(target)) == len(all_holders(source)) == 2
    if report.renamed == 0:
        assert all_keys(target) == keys
        assert all_holders(target) == all_holders(source)
    assert numbers_of(target) == numbers
    assert schedules_of(target) == schedules
    assert (report.schedules, report.keys) == (2, len(keys))
    assert target.paused_tasks() == ["paused"]
    assert target.queues() == [
        QueueRecord(queue="aged", ageing_ms=60_000),
        QueueRecord(queue="bound", max_waiting=1),
        QueueRecord(queue="shut", paused=True),
    ]
    assert (source.check(), target.check()) == ([], [])


def test_afterwards_the_target_runs_each_job_once_and_the_source_none(sides: Sides) -> None:
    fill(sides.source)
    sides.meet()
    sides.copy()
    assert claimed(sides.source) == []
    assert open_queues(sides.source.engine) == set()
    known = jobs_of(sides.target.engine).keys()
    sides.target.engine.change_queue("shut", QueueChange(paused=False))
    ran = run_all(sides.target)
    assert ran == Counter(known)
    assert claimed(sides.source) == []


def test_held_jobs_keep_their_place_before_others(files: Sides) -> None:
    """They were met at the head of their line."""
    held = [files.source.put(), files.source.put(task="paused")]
    files.source.engine.pause_task("paused")
    claim = files.source.take()
    files.source.finish(Unroutable(id=claim.id, token=claim.token))
    assert files.source.claim().claims == ()
    files.source.engine.close("worker", [], "ended")
    waiting = files.source.put_many(2)
    assert files.copy().is_complete
    files.target.engine.adopt(["task"])
    files.target.engine.resume_task("paused")
    assert claimed(files.target) == [*held, *waiting]


def test_jobs_keep_what_they_gained_by_waiting(files: Sides) -> None:
    files.source.engine.change_queue("queue", QueueChange(ageing_ms=PERIOD_MS))
    old = files.source.put()
    files.advance(8 * PERIOD_MS)
    middle = files.source.put(priority=7)
    assert files.copy().is_complete
    beaten, better = files.target.put(priority=7), files.target.put(priority=9)
    assert claimed(files.target) == [better, old, middle, beaten]


def test_an_empty_source_is_copied(sides: Sides) -> None:
    report = sides.copy()
    assert (report.is_complete, report.jobs, report.copied) == (True, (), 0)


# ------------------------------------------------------------------------------------------ killed


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("is_after", [False, True])
def test_a_copy_that_is_killed_at_any_call_goes_on(sides: Sides, is_after: bool) -> None:
    """Each run continues the one before, and ends one call later; in each phase from the first."""
    fill(sides.source, 2)
    sides.meet()
    source, target = sides.source.engine, sides.target.engine
    before, numbers = jobs_of(source), numbers_of(source)
    schedules, queues = schedules_of(source), source.queues()
    calls, kills = 1, Counter[Phase | None]()
    while phase_of(sides.source) is not Phase.DONE:
        begun = phase_of(sides.source)
        try:
            for _ in steps_of(sides, MortalEngines(calls, is_after=is_after)):
                assert claimed(sides.source) == []
                assert begun is Phase.OPENING or claimed(sides.target) == []
        except KilledError:
            reached = phase_of(sides.source)
            kills[reached] += 1
            calls = calls + 1 if reached is begun else 1
    assert kills[Phase.COPYING] > 60
    assert kills[Phase.OPENING] > 10
    assert without_partitions(jobs_of(target)) == without_partitions(before)
    assert numbers_of(source) == numbers_of(target) == numbers
    assert schedules_of(target) == schedules
    assert target.queues() == queues
    assert (source.check(), target.check()) == ([], [])


@pytest.mark.usefixtures("small_pages")
def test_a_copy_that_is_killed_after_any_step_goes_on(sides: Sides) -> None:
    fill(sides.source, 2)
    sides.meet()
    before = jobs_of(sides.source.engine)
    steps, is_done = 0, False
    while not is_done:
        steps += 1
        is_done = True
        for number, _ in enumerate(steps_of(sides, MortalEngines()), 1):
            if number == steps:
                is_done = False
                break
    assert steps > 10
    assert phase_of(sides.source) is Phase.DONE
    assert len(jobs_of(sides.target.engine)) == len(before)
    assert numbers_of(sides.target.engine) == numbers_of(sides.source.engine)
    assert sides.target.engine.check() == []


@pytest.mark.usefixtures("small_pages")
def test_a_run_goes_on_where_another_was_ended(files: Sides) -> None:
    files.source.put_many(20)
    for step in steps_of(files, MortalEngines()):
        if step == CopyStep("copying jobs", 12, 20):
            break
    seen: list[CopyStep] = []
    report = files.copy(between=seen.append)
    assert next(step.done for step in seen if step.doing == "copying jobs") == 3
    assert report.copied == 8
    assert report.is_complete


def test_two_processes_do_not_copy_at_a_time(files: Sides) -> None:
    files.source.put_many(3)
    steps = steps_of(files, MortalEngines())
    next(steps)
    assert files.copy().is_complete
    with pytest.raises(CopyRefused, match="Another process has continued this copy"):
        list(steps)


# ----------------------------------------------------------------------------------------- workers


def test_a_copy_is_refused_while_workers_run(files: Sides) -> None:
    files.source.put_many(3)
    claim = files.source.take("web-1.4711.aa")
    before = files.source.records()
    with pytest.raises(
        CopyRefused, match=r"Workers run at .*: web-1:4711\. Stop them, or give --dr"
    ):
        files.copy()
    assert files.source.records() == before
    assert files.source.engine.sessions()[0].command is SessionCommand.RUN
    assert files.source.engine.queues() == []
    assert phase_of(files.source) is None
    assert not files.target.engine.list_documents("copy")
    files.source.finish(Succeeded(id=claim.id, token=claim.token))


def test_workers_are_drained(sides: Sides) -> None:
    running, waiting = sides.source.put(), sides.source.put()
    sides.source.engine.beat([Beat(session="idle", info=b"info")])
    claim = sides.source.take("busy")
    waits = 0

    def work(step: CopyStep) -> None:
        nonlocal waits
        if step.doing != DRAINING:
            return
        waits += 1
        assert step == CopyStep(DRAINING, 1, is_waiting=True)
        pulses = sides.source.engine.beat([Beat(session="busy"), Beat(session="idle")])
        assert {pulse.command for pulse in pulses} == {SessionCommand.QUIET}
        assert claimed(sides.source) == []
        if waits == 3:
            outcome = Released(id=claim.id, token=claim.token, started=True)
            sides.source.finish(outcome)

    report = sides.copy(drains=True, between=work)
    assert waits == 3
    assert report.is_complete
    assert {claim.id, running, waiting} == jobs_of(sides.target.engine).keys()
    assert sides.target.get(claim.id).counters.interruptions == 1


def test_a_job_that_is_given_back_during_the_drain_keeps_its_place(files: Sides) -> None:
    first, second = files.source.put(), files.source.put()
    claim = files.source.claim(limit=1).claims[0]

    def work(step: CopyStep) -> None:
        if step.doing == DRAINING:
            files.source.finish(Released(id=claim.id, token=claim.token, started=False))

    assert files.copy(drains=True, between=work).is_complete
    assert claimed(files.target) == [first, second]


def test_a_job_that_ends_between_two_calls_is_not_copied(files: Sides) -> None:
    id, other = files.source.put(), files.source.put()
    source = files.source.engine
    hooked = HookedEngine(source, "read_copies", lambda: source.cancel([id]))
    files.advance(1)
    for _ in moving(files, Copier(cast(Engine, hooked), files.target.engine).run()):
        pass
    assert files.target.ids() == [other]


def test_a_job_that_ends_during_the_drain_is_not_copied(files: Sides) -> None:
    id = files.source.put()
    claim = files.source.take()

    def work(step: CopyStep) -> None:
        if step.doing == DRAINING:
            files.source.finish(Succeeded(id=id, token=claim.token))

    report = files.copy(drains=True, between=work)
    assert (report.is_complete, report.jobs) == (True, ())


def test_jobs_of_dead_workers_are_taken_back(sides: Sides) -> None:
    id = sides.source.put()
    sides.source.take()
    sides.source.advance(3 * LEASE_MS)
    sides.meet()

    def wait(step: CopyStep) -> None:
        if step.doing == DRAINING:
            sides.source.pass_time(LEASE_MS // 3)
            sides.source.engine.close("bystander", [], "ended")

    assert sides.copy(between=wait).is_complete
    assert sides.target.get(id).counters.losses == 1


def test_a_worker_that_starts_during_a_copy_ends_it(files: Sides) -> None:
    files.source.put_many(3)

    def start(step: CopyStep) -> None:
        if step.doing == "copying jobs" and "new" not in open_queues(files.source.engine):
            files.source.put(queue="new")
            assert files.source.take().queue == "new"

    with pytest.raises(CopyRefused, match="Workers run"):
        files.copy(between=start)
    assert claimed(files.target) == []
    assert files.copy(drains=True, between=lambda _step: end_all(files.source)).is_complete
    assert len(claimed(files.target)) == 4


def end_all(world: World) -> None:
    world.engine.close("worker", [], "ended")


# ------------------------------------------------------------------------------- producers continue


def test_jobs_that_arrive_before_the_comparison_are_copied(sides: Sides) -> None:
    first = sides.source.put()
    late: list[str] = []

    def enqueue(step: CopyStep) -> None:
        sides.advance(1)
        if step.doing == "copying jobs":
            late.append(sides.source.put(queue=f"new {len(late)}"))

    report = sides.copy(between=enqueue)
    assert (report.is_complete, report.newer) == (True, 0)
    assert len(late) == len(WALKS)
    assert jobs_of(sides.target.engine).keys() == {first, *late}
    assert sorted(claimed(sides.target)) == sorted([first, *late])
    assert claimed(sides.source) == []


def test_jobs_that_arrive_all_the_time_keep_no_copy_from_its_end(sides: Sides) -> None:
    """Each is copied by one of the runs."""
    put = [sides.source.put()]

    def enqueue(_step: CopyStep) -> None:
        sides.advance(1)
        put.append(sides.source.put(idempotency_key=f"key {len(put)}"))

    report = sides.copy(between=enqueue)
    assert report.is_complete
    assert report.newer == len(put) - len(jobs_of(sides.target.engine)) > 0
    ran = Counter(run_and_forget(sides))
    for _ in range(2):
        assert sides.copy(between=enqueue).is_complete
        ran.update(run_and_forget(sides))
    assert (sides.copy().newer, sides.copy().copied) == (0, 0)
    ran.update(run_and_forget(sides))
    assert ran == Counter(put)
    assert claimed(sides.source) == []


def run_and_forget(sides: Sides) -> list[str]:
    """Run the ready jobs of the target, and purge them."""
    engine, session = sides.target.engine, sides.target.nonce()
    claims = claim_jobs(engine, session, session, Plan(), 10_000).claims
    engine.finish([Succeeded(id=one.id, token=one.token) for one in claims])
    engine.close(session, [], "ended")
    sides.advance(MIN_RECORD_MS)
    while engine.tend().more:
        pass
    assert sides.target.ids() == []
    return [claim.id for claim in claims]


def test_later_jobs_are_copied_by_another_run_and_earlier_ones_are_not(sides: Sides) -> None:
    """The target has run the earlier ones, and has forgotten them."""
    sides.source.put_many(3, idempotency_key=None)
    sides.source.put(idempotency_key="early")
    sides.copy()
    ran = run_all(sides.target)
    assert len(ran) == 4
    sides.source.move_clock(sides.target.now_ms + MIN_RECORD_MS)
    sides.meet()
    sides.target.engine.tend()
    assert sides.target.ids() == []
    report = sides.copy()
    assert (report.is_complete, report.is_late, report.copied) == (True, True, 0)
    late = sides.source.put(idempotency_key="late")
    new = sides.source.put(queue="new")
    save_schedule(sides.source.engine, "late")
    assert sides.source.claim(queues=("queue",)).claims == ()
    report = sides.copy()
    assert (report.is_complete, report.copied) == (True, 2)
    assert {(one.queue, one.source, one.target) for one in report.jobs} == {
        ("new", 1, 1),
        ("queue", 1, 1),
    }
    assert sorted(claimed(sides.target)) == sorted([late, new])
    assert "late" in schedules_of(sides.target.engine)
    assert schedules_of(sides.source.engine)["late"] != schedules_of(sides.target.engine)["late"]
    keys = {key.key for key in all_keys(sides.target.engine)}
    assert keys == {"late"}
    assert sides.copy().copied == 0


def test_a_later_run_leaves_other_queues_of_the_target_open(files: Sides) -> None:
    files.source.put()
    files.copy()
    files.advance(1)
    files.source.put(queue="late")
    own = files.target.put(queue="own")

    def work(step: CopyStep) -> None:
        if step.doing == "comparing jobs":
            assert not files.target.claim(queues=("late",)).claims
            assert open_queues(files.target.engine) == {"queue", "own"}

    assert files.copy(between=work).is_complete
    assert own in claimed(files.target)


def test_a_job_that_a_later_run_cannot_tell_apart_is_reported(files: Sides) -> None:
    """The clock of the source was set back after the copy."""
    files.source.put()
    files.copy()
    files.source.advance(-DAY_MS)
    files.source.put()
    report = files.copy()
    assert not report.is_complete
    assert report.copied == 0


def test_a_source_that_counts_other_jobs_than_it_lists_is_reported(files: Sides) -> None:
    """Both are read from the source: neither may hide a job from the other."""
    files.source.put()
    vandal = apsw.Connection(str(files.source_file))
    vandal.execute("UPDATE counters SET number = 2")
    vandal.close()
    report = files.copy()
    assert not report.is_complete
    assert [(kind.source, kind.target) for kind in report.jobs] == [(2, 1)]
    assert claimed(files.target) == []
    assert repair_all(files.source.engine, change=True).fixed
    assert files.copy().is_complete


def test_jobs_of_the_future_are_copied_once(files: Sides) -> None:
    """The clock of the source was set back before the copy."""
    files.source.put_many(2)
    files.source.advance(-DAY_MS)
    assert files.copy().is_complete
    run_all(files.target)
    files.target.advance(MIN_RECORD_MS)
    assert files.target.engine.tend().purged == 2
    files.source.advance(DAY_MS + 1)
    files.source.put()
    assert files.copy().copied == 1


def test_what_the_target_has_removed_does_not_come_back(files: Sides) -> None:
    id = files.source.put(idempotency_key="key")
    save_schedule(files.source.engine, "hourly")
    files.copy()
    files.target.engine.cancel([id])
    files.target.engine.discard([id])
    files.target.engine.remove_schedule("hourly")
    assert files.copy().is_complete
    assert (files.target.ids(), all_keys(files.target.engine)) == ([], [])
    assert schedules_of(files.target.engine) == {}


# -------------------------------------------------------------------------------------------- keys


def unique(name: str = "key") -> UniqueKey:
    return UniqueKey(key=name, on_conflict=OnConflict.RETURN)


@pytest.mark.parametrize("fields", [{"unique": unique()}, {"idempotency_key": "key"}], ids=str)
def test_a_job_whose_key_is_taken_is_not_copied(sides: Sides, fields: dict[str, Any]) -> None:
    id, other = sides.source.put(**fields), sides.source.put()
    holder = sides.target.put(**fields)
    seen: list[CopyStep] = []
    report = sides.copy(between=seen.append)
    assert not report.is_complete
    assert passes_in(seen) == 1
    assert report.refused == (id,)
    assert report.jobs == (ComparedKind(queue="queue", state=State.READY, source=2, target=1),)
    assert claimed(sides.source) == claimed(sides.target) == []
    assert jobs_of(sides.target.engine).keys() == {holder, other}
    sides.source.engine.cancel([id])
    report = sides.copy()
    assert (report.is_complete, report.refused) == (True, ())
    assert set(claimed(sides.target)) == {holder, other}


def test_a_key_of_an_ended_job_may_be_taken(sides: Sides) -> None:
    id = sides.source.put(idempotency_key="key")
    claim = sides.source.take()
    sides.source.finish(Succeeded(id=id, token=claim.token))
    sides.source.engine.close("worker", [], "ended")
    sides.target.put(idempotency_key="key")
    assert sides.copy().is_complete


def test_keys_decide_in_the_target(sides: Sides) -> None:
    """Also where the id of a job must have another partition."""
    fields: list[dict[str, Any]] = [
        {"unique": unique("one")},
        {"unique": unique("two"), "idempotency_key": "two"},
        {"idempotency_key": "three"},
        *({"unique": unique(f"more {at}")} for at in range(9)),
    ]
    for one in fields:
        sides.source.put(**one)
    report = sides.copy()
    assert report.is_complete
    placed = [sides.target.engine.put([sides.target.new(**one)])[0] for one in fields]
    assert [one.code for one in placed] == [PutCode.EXISTING] * len(fields)
    assert {one.id for one in placed} == jobs_of(sides.target.engine).keys()
    assert len(claimed(sides.target)) == len(fields)


def test_ids_stay_the_same_unless_a_key_decides(sides: Sides) -> None:
    plain = [sides.source.put() for _ in range(8)]
    keyed = {f"key {at}": sides.source.put(unique=unique(f"key {at}")) for at in range(8)}
    report = sides.copy()
    target = sides.target.engine
    ids = [target.copied_id(id, "task", key) for key, id in keyed.items()]
    assert jobs_of(target).keys() == {*plain, *ids}
    moved = set(keyed.values()) - set(ids)
    assert len(moved) == report.renamed
    has_partitions = [one.elsewhere(plain[0]) != [] for one in (sides.source.engine, target)]
    assert bool(moved) is (has_partitions == [False, True])
    assert {id[:10] + id[12:] for id in ids} == {id[:10] + id[12:] for id in keyed.values()}


# ---------------------------------------------------------------------------------- places that do


def test_the_same_place_is_refused(files: Sides) -> None:
    files.source.put()
    with pytest.raises(CopyRefused, match="are the same place"):
        Sides(files.source, files.source).copy()
    link = files.source_file.with_name("link.db")
    link.symlink_to(files.source_file)
    engine = open_engine(f"sqlite:///{link}", OPTIONS)
    with pytest.raises(CopyRefused, match="are the same place"):
        list(Copier(files.source.engine, engine).run())
    engine.shutdown()
    assert not files.source.engine.list_documents("copy")
    assert len(claimed(files.source)) == 1


def test_another_target_is_refused(files: Sides, third: World) -> None:
    files.source.put()
    next(steps_of(files, MortalEngines()))
    for _ in range(2):
        with pytest.raises(CopyRefused, match=r"has nothing of that copy\. Give the url of"):
            Sides(files.source, third).copy()
        assert third.engine.list_documents("copy") == []
    assert files.copy().is_complete
    with pytest.raises(CopyRefused, match="Jobs that were copied once may have run there"):
        Sides(files.source, third).copy()
    empty(files)
    with pytest.raises(CopyRefused, match="Jobs that were copied once may have run there"):
        files.copy()


def test_a_place_of_another_copy_is_refused(files: Sides, third: World) -> None:
    files.source.put()
    steps = steps_of(files, MortalEngines())
    next(steps)
    for sides in (Sides(third, files.target), Sides(files.target, third)):
        with pytest.raises(CopyRefused, match=r"The copy from .* is not complete"):
            sides.copy()
    list(steps)
    for sides in (Sides(third, files.source), Sides(files.target, files.source)):
        with pytest.raises(CopyRefused, match="they would run twice"):
            sides.copy()
    assert Sides(files.target, third).copy().is_complete
    with pytest.raises(CopyRefused, match="they would run twice"):
        files.copy()


# -------------------------------------------------------------------------------- open transactions


@pytest.mark.parametrize("begins_at", ["copying jobs", "comparing keys"])
def test_jobs_of_an_open_transaction_are_copied(transactional: Sides, begins_at: str) -> None:
    """Their instant of creation is before that of the copy, and a later run skips such jobs."""
    sides = transactional
    first, late = sides.source.put(), sides.source.new()
    with closing(sides.source.variant.connect()) as connection:

        def work(step: CopyStep) -> None:
            if step.doing == begins_at and connection.info.transaction_status == IDLE:
                sides.source.advance(-1)  # before the instant that ends the comparison
                put_within(sides.source, connection, late)
                sides.source.advance(1)
            elif step.doing == SETTLING:
                connection.commit()

        report = sides.copy(between=work)
    assert report.is_complete
    assert jobs_of(sides.target.engine).keys() == {first, late.id}


def test_a_claim_that_overlaps_the_pause_is_waited_for(transactional: Sides) -> None:
    """It has not seen the pause, and the copy does not see its job run."""
    sides = transactional
    id, engine = sides.source.put(), sides.source.engine
    worker = World(sides.source.variant)
    worker.move_clock(sides.source.now_ms)
    with closing(sides.source.variant.connect()) as blocker, ThreadPoolExecutor() as pool:
        blocker.execute("LOCK TABLE windlass.deltas IN SHARE MODE")
        claiming = pool.submit(worker.take)
        until(engine.open_transactions, "a claim that has begun")

        def work(step: CopyStep) -> None:
            if step.doing == SETTLING:
                blocker.rollback()
            elif step.doing == DRAINING:
                sides.source.finish(Succeeded(id=id, token=claiming.result().token))

        report = sides.copy(drains=True, between=work)
        blocker.rollback()
    assert (report.is_complete, report.jobs) == (True, ())
    assert sides.target.ids() == []


def put_within(world: World, connection: psycopg.Connection, job: NewJob) -> None:
    verbs = transaction_verbs(world.engine)
    assert verbs is not None
    read_connection("connection", connection).run(verbs, verbs.put_within([job]))


# ----------------------------------------------------------------------------- what the target has


def test_what_is_paused_in_the_target_stays_paused(files: Sides) -> None:
    for queue in ("a", "b"):
        files.source.put(queue=queue)
    files.target.engine.change_queue("a", QueueChange(paused=True))
    files.target.engine.change_queue("b", QueueChange(max_waiting=7))
    files.source.engine.change_queue("b", QueueChange(max_waiting=3, ageing_ms=60_000))
    assert files.copy().is_complete
    assert files.target.engine.queues() == [
        QueueRecord(queue="a", paused=True),
        QueueRecord(queue="b", max_waiting=7),
    ]


def test_jobs_of_the_target_wait_during_a_copy(sides: Sides) -> None:
    sides.source.put()
    own = sides.target.put()

    def work(step: CopyStep) -> None:
        if step.doing != "opening the target":
            assert claimed(sides.target) == []

    assert sides.copy(between=work).is_complete
    assert own in claimed(sides.target)


def test_dead_jobs_are_kept_for_a_while(files: Sides) -> None:
    fill(files.source)
    files.source.advance(OPTIONS.dead_ttl_ms)
    files.meet()
    assert files.copy().is_complete
    files.advance(LEAST_KEEP_MS - 2)
    assert files.target.engine.tend().purged == 0
    files.advance(2)
    assert files.target.engine.tend().purged == 4


def test_schedules_go_on_in_the_target_alone(sides: Sides) -> None:
    fill(sides.source)
    sides.meet()
    sides.copy()
    assert [one.name for one in sides.target.engine.list_schedules()] == ["hourly", "stopped"]
    sides.advance(60 * 60 * 1000)
    assert sides.source.engine.due_schedules().records == ()
    assert [one.name for one in sides.target.engine.due_schedules().records] == ["hourly"]


def test_a_schedule_that_the_target_has_stays_as_it_is(files: Sides) -> None:
    save_schedule(files.source.engine, "hourly", is_paused=True)
    files.advance(5)
    save_schedule(files.target.engine, "hourly")
    before = schedules_of(files.target.engine)
    assert files.copy().schedules == 1
    assert schedules_of(files.target.engine) == before


# -------------------------------------------------------------------------------------------- undo


@pytest.mark.usefixtures("small_pages")
def test_a_copy_can_be_undone_after_any_step(sides: Sides) -> None:
    fill(sides.source, 2)
    sides.meet()
    own = sides.target.put(queue="mail")
    sides.target.engine.change_queue("runs", QueueChange(paused=True))
    source, target = sides.source.engine, sides.target.engine
    before, schedules = jobs_of(source), schedules_of(source)
    queues, others = source.queues(), target.queues()
    for steps in range(1, 99):
        number = 0
        for number, step in enumerate(steps_of(sides, MortalEngines()), 1):
            if number == steps or step.doing == "opening the target":
                break
        if step.doing == "opening the target":
            break
        sides.undo()
        assert jobs_of(source) == before
        assert (schedules_of(source), source.queues()) == (schedules, queues)
        assert jobs_of(target).keys() == {own}
        assert [(one.queue, one.paused) for one in target.queues() if one.paused] == [
            (one.queue, one.paused) for one in others
        ]
        assert source.list_documents("copy") == target.list_documents("copy") == []
        assert (source.check(), target.check()) == ([], [])
    assert steps > 10
    with pytest.raises(CopyRefused, match="complete, and its jobs may have run there"):
        sides.undo()


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("is_after", [False, True])
def test_an_undo_that_is_killed_goes_on(files: Sides, is_after: bool) -> None:
    fill(files.source, 1)
    files.meet()
    source, target = files.source.engine, files.target.engine
    before, schedules, queues = jobs_of(source), schedules_of(source), source.queues()
    for step in steps_of(files, MortalEngines()):
        if step.doing == "comparing jobs":
            break
    calls = 1
    while phase_of(files.source) is not None:
        mortal = MortalEngines(calls, is_after=is_after)
        try:
            for _ in undo(mortal.wrap(source), mortal.wrap(target)):
                pass
        except KilledError:
            calls += 1
    assert calls > 20
    assert (jobs_of(source), schedules_of(source), source.queues()) == (before, schedules, queues)
    assert jobs_of(target) == {}
    assert source.list_documents("copy") == target.list_documents("copy") == []


def test_later_jobs_alone_are_undone(files: Sides) -> None:
    first = files.source.put()
    files.copy()
    files.advance(1)
    late = files.source.put()
    for step in steps_of(files, MortalEngines()):
        if step.doing == "comparing jobs":
            break
    assert jobs_of(files.target.engine).keys() == {first, late}
    files.undo()
    assert claimed(files.target) == [first]
    assert claimed(files.source) == []
    assert phase_of(files.source) is Phase.DONE
    assert files.copy().copied == 1
    assert claimed(files.target) == [late]


def test_nothing_is_there_to_be_undone(files: Sides) -> None:
    with pytest.raises(CopyRefused, match="there is nothing to undo"):
        files.undo()


def test_a_copy_to_a_place_that_was_emptied_can_be_undone(files: Sides) -> None:
    id = files.source.put()
    next(steps_of(files, MortalEngines()))
    empty(files)
    files.undo()
    assert claimed(files.source) == [id]


def test_a_copy_to_a_place_that_was_emptied_goes_on(files: Sides) -> None:
    ids = files.source.put_many(9)
    for step in steps_of(files, MortalEngines()):
        if step.doing == "comparing keys":
            break
    empty(files)
    assert files.copy().is_complete
    assert claimed(files.target) == ids


def empty(sides: Sides) -> None:
    """Remove the target, as its operator may do."""
    sides.target.variant.shutdown()
    sides.target_file.unlink()
    sides.target.engine = sides.target.open()
