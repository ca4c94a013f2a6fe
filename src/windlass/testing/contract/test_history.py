"""Test the history: counters of enqueued jobs, measures of reports, samples of queues, hours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from windlass.core.history import (
    ENQUEUED,
    HOUR_MS,
    KEEP_HOURS_MS,
    KEEP_MINUTES_MS,
    MINUTE_MS,
    OTHER,
    WIDTH,
    Tally,
    add_counts,
)
from windlass.core.unique import OnConflict
from windlass.engine.contract import (
    BITE,
    MAX_COUNT,
    MAX_HISTORY_PAGE,
    MAX_MEASURES,
    MAX_PAIRS,
    REPORTER_MS,
    Beat,
    Capability,
    Engine,
    HistoryPage,
    Measure,
    MeasureRow,
    NewJob,
    Plan,
    PutCode,
    QueueChange,
    QueueSample,
    Released,
    Retried,
    ScheduleChange,
    Succeeded,
    Tended,
    UniqueKey,
    Waiter,
)
from windlass.errors import EngineError, InvalidCursor
from windlass.testing.contract.place import Place
from windlass.testing.contract.world import START_MS, World

ONES = (1,) * WIDTH
ALWAYS_MS = 10**12


def measure(queue: str = "queue", task: str = "task", runs: int = 1) -> Measure:
    tally = Tally()
    for _ in range(runs):
        tally.add(0, 0.1, 1)
    return Measure(queue=queue, task=task, counts=tuple(tally.counts))


def sample(queue: str, at_ms: int = START_MS, **numbers: int) -> QueueSample:
    names = ("ready", "scheduled", "running", "dead", "oldest_ready_ms")
    return QueueSample(at_ms=at_ms, queue=queue, **{**dict.fromkeys(names, 0), **numbers})


def pages(engine: Engine, *, by_hour: bool = False) -> Iterator[HistoryPage]:
    page = engine.history(ALWAYS_MS, by_hour=by_hour)
    yield page
    while page.cursor is not None:
        page = engine.history(ALWAYS_MS, by_hour=by_hour, cursor=page.cursor)
        yield page


def measured(world: World, *, by_hour: bool = False) -> list[MeasureRow]:
    found = pages(world.engine, by_hour=by_hour)
    return [row for page in found for row in page.measures]


def sampled(world: World, *, by_hour: bool = False) -> list[QueueSample]:
    return [row for page in pages(world.engine, by_hour=by_hour) for row in page.samples]


def enqueued(world: World) -> dict[tuple[int, str, str], int]:
    """How many jobs were enqueued, by minute, queue and task."""
    return {(row.at_ms, row.queue, row.task): row.counts[ENQUEUED] for row in measured(world)}


def tend(world: World) -> None:
    """Run all batches of maintenance."""
    while world.engine.tend().more:
        pass


def put_tasks(world: World, begin: int, end: int) -> None:
    """Put a job of each of these tasks, all into one partition."""
    tasks = [f"task-{number:03}" for number in range(begin, end)]
    world.engine.put([world.new(id=world.later_id(0), task=task) for task in tasks])


# ------------------------------------------------------------------------------------- reports


def test_reports_are_added_once(world: World) -> None:
    first, second = measure(runs=2), measure(runs=3)
    world.engine.record("worker", 1, [first, measure("other")])
    world.engine.record("worker", 1, [first])
    world.engine.record("worker", 3, [second])
    world.engine.record("worker", 2, [second])
    world.engine.record("second", 1, [first])
    total = tuple(2 * a + b for a, b in zip(first.counts, second.counts, strict=True))
    assert [(row.queue, row.task, row.counts) for row in measured(world)] == [
        ("other", "task", measure().counts),
        ("queue", "task", total),
    ]
    assert world.engine.check() == []


def test_measures_of_one_report_may_have_the_same_name(world: World) -> None:
    one = Measure(queue="q", task="t", counts=ONES)
    world.engine.record("worker", 1, [one, one])
    world.engine.record("worker", 2, [])
    (row,) = measured(world)
    assert row.counts == (2,) * WIDTH


def test_any_text_names_a_measure(world: World) -> None:
    names = [("q", "t"), ("q", ""), ("", "qt"), ("q\1t", "\xff"), ("ä", "a b"), ("q", "t\1")]
    measures = [Measure(queue=queue, task=task, counts=ONES) for queue, task in names]
    for number in (1, 2):
        world.engine.record("worker\1 ä", number, measures)
    found = {(row.queue, row.task): row.counts for row in measured(world)}
    assert found == dict.fromkeys(names, (2,) * WIDTH)


def test_large_counts_are_exact(world: World) -> None:
    counts = (MAX_COUNT // 2 - 1,) * WIDTH
    for number in (1, 2):
        world.engine.record("worker", number, [Measure(queue="q", task="t", counts=counts)])
    (row,) = measured(world)
    assert row.counts == (MAX_COUNT - 2,) * WIDTH


@pytest.mark.parametrize(
    "counts", [(), ONES[1:], (*ONES, 1), (-1, *ONES[1:]), (MAX_COUNT, *ONES[1:])]
)
def test_a_wrong_measure_is_refused(world: World, counts: tuple[int, ...]) -> None:
    with pytest.raises(EngineError, match=f"Expected {WIDTH} counts from 0"):
        world.engine.record("worker", 1, [measure(), Measure(queue="q", task="t", counts=counts)])
    assert measured(world) == []


def test_too_many_measures_are_refused(world: World) -> None:
    with pytest.raises(EngineError, match=f"at most {MAX_MEASURES} measures"):
        world.engine.record("worker", 1, [measure()] * (MAX_MEASURES + 1))
    world.engine.record("worker", 1, [measure()] * MAX_MEASURES)
    assert sum(measured(world)[0].counts[1:6]) == MAX_MEASURES


@pytest.mark.parametrize("number", [-1, MAX_COUNT])
def test_a_wrong_number_of_a_report_is_refused(world: World, number: int) -> None:
    with pytest.raises(EngineError, match="Expected a number from 0"):
        world.engine.record("worker", number, [measure()])
    world.engine.record("worker", MAX_COUNT - 2, [measure()])
    world.engine.record("worker", MAX_COUNT - 1, [measure()])
    assert sum(measured(world)[0].counts[1:6]) == 2


def test_a_reporter_is_forgotten(world: World) -> None:
    world.engine.record("worker", 7, [measure()])
    world.advance(REPORTER_MS - 1)
    world.engine.tend()
    world.engine.record("worker", 7, [measure()])
    assert len(measured(world)) == 1
    world.advance(1)
    world.engine.tend()
    world.engine.record("worker", 7, [measure()])
    assert len(measured(world)) == 2
    assert world.engine.check() == []


# ------------------------------------------------------------------------------- enqueued jobs


def test_the_jobs_of_a_minute_are_counted(world: World) -> None:
    world.put_many(3)
    world.put(task="other", queue="queue+label")
    assert world.engine.stats().enqueued == {("queue", "task"): 3, ("queue", "other"): 1}
    assert world.engine.stats().totals["enqueued"] == 4
    world.engine.tend()
    world.put()
    world.engine.tend()
    world.advance(MINUTE_MS)
    world.engine.tend()
    assert enqueued(world) == {
        (START_MS, "queue", "task"): 3,
        (START_MS, "queue", "other"): 1,
        (START_MS + MINUTE_MS, "queue", "task"): 1,
    }
    assert world.engine.check() == []


def test_every_kind_of_put_is_counted_once(world: World) -> None:
    engine = world.engine
    plain = [world.new(task="plain", priority=number % 2) for number in range(5)]
    for _ in range(2):
        engine.put(plain[:3])
        engine.put(plain)
    later = world.new(task="later", run_in_ms=1_000)
    key = world.new(task="key", idempotency_key="k")
    again = world.new(task="key", idempotency_key="k")
    labelled = world.new(task="plain", queue="queue+gpu")
    for _ in range(2):
        engine.put([later, key, again, labelled])
        engine.put([later])
    single = world.new(task="single")
    engine.put([single])
    engine.put([single])
    assert engine.stats().enqueued == {
        ("queue", "plain"): 6,
        ("queue", "later"): 1,
        ("queue", "key"): 1,
        ("queue", "single"): 1,
    }
    assert engine.stats().totals["enqueued"] == 9


@pytest.mark.parametrize("on_conflict", OnConflict)
def test_a_job_that_is_not_stored_is_not_counted(world: World, on_conflict: OnConflict) -> None:
    unique = UniqueKey(key="key", on_conflict=on_conflict)
    world.put(unique=unique)
    world.put(unique=unique)
    world.engine.change_queue("full", QueueChange(max_waiting=1))
    world.put(queue="full", id=world.later_id(0))
    (placed,) = world.engine.put([world.new(queue="full", id=world.later_id(0))])
    assert placed.code is PutCode.FULL
    assert world.engine.stats().enqueued == {("queue", "task"): 1, ("full", "task"): 1}


@pytest.mark.parametrize("is_tended", [False, True])
def test_a_repeated_put_of_an_ended_job_counts_nothing(world: World, is_tended: bool) -> None:
    job_id = world.put()
    claim = world.take()
    world.finish(Succeeded(id=claim.id, token=claim.token, result_ttl_ms=MINUTE_MS))
    world.engine.put([world.new(id=job_id, task="other")])
    if is_tended:
        world.engine.tend()
    assert world.engine.stats().enqueued == {("queue", "task"): 1}


def test_the_jobs_of_a_schedule_are_counted(world: World) -> None:
    partition = world.engine.schedule_partition("s")
    jobs = tuple(world.new(id=world.later_id(partition)) for _ in range(2))
    change = ScheduleChange(
        name="s", expected="", revision="a", due_ms=None, note=b"", body=b"", jobs=jobs
    )
    world.engine.change_schedules([change])
    world.engine.change_schedules([change])
    assert world.engine.stats().enqueued == {("queue", "task"): 2}


@pytest.mark.needs(Capability.HANDOFF)
@pytest.mark.parametrize("more", [{}, {"expires_in_ms": 60_000}], ids=["plain", "expires"])
def test_a_job_that_is_handed_off_is_counted(variant: Place, more: dict[str, Any]) -> None:
    waiting, putting = variant.open(), variant.open()
    putting.beat([Beat(session="worker", info=b"known")])
    for number in range(3):
        waiter = Waiter("worker", Plan(), f"nonce-{number}")
        assert waiting.wait([waiter], 20) == []
        job = NewJob(id=f"job-{number}", task="task", queue="queue", payload=b"{}", **more)
        putting.put([job])
        putting.put([job])
        [wake_up] = waiting.wait([waiter], 5_000)
        batch = waiting.read_handoff(wake_up.handed, waiter.nonce)
        assert batch is not None
        assert [claim.waited_ms for claim in batch.claims] == [0]
    assert putting.stats().enqueued == {("queue", "task"): 3}
    assert putting.check() == []


def test_growth_is_added_once_by_any_number_of_workers(world: World) -> None:
    others = [world.open() for _ in range(2)]
    world.put_many(3)
    for engine in (world.engine, *others):
        engine.tend()
    world.advance(MINUTE_MS)
    world.put()
    for engine in (*others, world.engine):
        engine.tend()
    assert enqueued(world) == {
        (START_MS, "queue", "task"): 3,
        (START_MS + MINUTE_MS, "queue", "task"): 1,
    }


def test_pairs_beyond_the_limit_count_together(world: World) -> None:
    put_tasks(world, 0, MAX_PAIRS + 5)
    put_tasks(world, 0, 1)
    put_tasks(world, MAX_PAIRS, MAX_PAIRS + 1)
    found = dict(world.engine.stats().enqueued)
    assert found.pop((OTHER, OTHER)) == 6
    assert found.pop(("queue", "task-000")) == 2
    assert set(found.values()) == {1}
    assert len(found) == MAX_PAIRS - 1
    assert world.engine.stats().totals["enqueued"] == MAX_PAIRS + 7
    tend(world)
    assert len(measured(world)) == MAX_PAIRS + 1
    assert sum(enqueued(world).values()) == MAX_PAIRS + 7
    assert world.engine.check() == []


def test_a_pair_that_is_not_used_for_a_day_is_forgotten(world: World) -> None:
    put_tasks(world, 0, MAX_PAIRS + 2)
    tend(world)
    world.advance(KEEP_MINUTES_MS - 1)
    put_tasks(world, 1, 2)
    tend(world)
    assert len(world.engine.stats().enqueued) == MAX_PAIRS + 1
    world.advance(MINUTE_MS)
    tend(world)
    assert world.engine.stats().enqueued == {("queue", "task-001"): 2}
    assert world.engine.stats().totals["enqueued"] == MAX_PAIRS + 3
    put_tasks(world, MAX_PAIRS, MAX_PAIRS + 2)
    put_tasks(world, 0, 1)
    assert world.engine.stats().enqueued == {
        ("queue", "task-001"): 2,
        **{("queue", f"task-{number}"): 1 for number in (MAX_PAIRS, MAX_PAIRS + 1)},
        ("queue", "task-000"): 1,
    }
    assert world.engine.stats().totals["enqueued"] == MAX_PAIRS + 6
    assert world.engine.check() == []


# ------------------------------------------------------------------------------------- samples


def test_a_sample_of_each_queue(world: World) -> None:
    world.put_many(2)
    world.put(queue="queue+label")
    world.put(queue="later", run_in_ms=10 * MINUTE_MS)
    world.claim(limit=1)
    world.advance(20)
    world.engine.tend()
    assert world.engine.history(MINUTE_MS).samples == (
        sample("later", scheduled=1),
        sample("queue", ready=2, running=1, oldest_ready_ms=20),
    )


def test_a_queue_has_one_sample_in_a_minute(world: World) -> None:
    world.put()
    world.engine.tend()
    world.put()
    world.advance(MINUTE_MS - 1)
    world.engine.tend()
    assert [row.ready for row in sampled(world)] == [1]
    world.advance(1)
    world.engine.tend()
    assert [row.ready for row in sampled(world)] == [1, 2]


def test_a_bounded_number_of_queues_has_samples(world: World) -> None:
    number = 11 * MAX_PAIRS
    jobs = [world.new(queue=f"queue-{at:04}", id=world.later_id(0)) for at in range(number)]
    world.engine.put(jobs)
    world.engine.tend()
    assert len(sampled(world)) == MAX_PAIRS
    assert {row.ready for row in sampled(world)} == {1}


# ------------------------------------------------------------------------------- hours and pages


def test_old_minutes_become_hours(world: World) -> None:
    world.engine.record("worker", 1, [measure()])
    world.put()
    world.engine.tend()
    world.advance(MINUTE_MS)
    world.engine.record("worker", 2, [measure()])
    world.claim()
    world.engine.tend()
    world.advance(KEEP_MINUTES_MS + 1)
    world.engine.tend()
    assert [row.at_ms for row in measured(world)] == []
    (row,) = measured(world, by_hour=True)
    assert row.at_ms == START_MS - START_MS % HOUR_MS
    assert row.counts == (1, *(2 * count for count in measure().counts[1:]))
    (sample,) = world.engine.history(10**12, by_hour=True).samples
    assert (sample.ready, sample.running, sample.at_ms) == (1, 1, row.at_ms)
    assert len(row.counts) == WIDTH
    assert world.engine.check() == []


def test_minutes_become_hours_in_bounded_batches(world: World) -> None:
    names = [f"task-{number:03}" for number in range(MAX_PAIRS)]
    for number in range(3):
        measures = [Measure(queue="q", task=name, counts=ONES) for name in names]
        world.engine.record("worker", number + 1, measures)
        world.advance(HOUR_MS)
    world.advance(KEEP_MINUTES_MS)
    left = len(measured(world))
    assert left == 3 * MAX_PAIRS
    while world.engine.tend().more:
        assert left - len(measured(world)) <= BITE
        assert len(measured(world)) + len(measured(world, by_hour=True)) == 3 * MAX_PAIRS
        left = len(measured(world))
    assert measured(world) == []
    rows = measured(world, by_hour=True)
    assert {row.at_ms for row in rows} == {START_MS + number * HOUR_MS for number in range(3)}
    assert {row.counts for row in rows} == {ONES}


def test_hours_are_removed(world: World) -> None:
    world.engine.record("worker", 1, [measure()])
    world.put()
    tend(world)
    world.engine.purge("queue")
    world.advance(KEEP_MINUTES_MS + 1)
    tend(world)
    world.advance(KEEP_HOURS_MS - KEEP_MINUTES_MS - 1)
    tend(world)
    assert (len(measured(world, by_hour=True)), len(sampled(world, by_hour=True))) == (1, 1)
    world.advance(1)
    tend(world)
    assert (measured(world, by_hour=True), sampled(world, by_hour=True)) == ([], [])


def test_measures_beyond_the_limit_go_together(world: World) -> None:
    """In each minute and each hour; an hour may have more names than each of its minutes."""
    names = [f"task-{number:03}" for number in range(MAX_PAIRS + 10)]
    measures = [Measure(queue="q", task=name, counts=ONES) for name in names]
    world.engine.record("worker", 1, measures)
    world.engine.record("worker", 2, measures)
    found = {row.task: row.counts[0] for row in measured(world)}
    assert found.pop(OTHER) == 20
    assert found == dict.fromkeys(names[:MAX_PAIRS], 2)
    world.advance(MINUTE_MS)
    world.engine.record("worker", 3, measures[::-1])
    world.advance(KEEP_MINUTES_MS + 1)
    tend(world)
    assert measured(world) == []
    rows = measured(world, by_hour=True)
    assert len(rows) == MAX_PAIRS + 1
    assert add_counts(row.counts for row in rows) == (3 * len(names),) * WIDTH


def test_a_page_has_whole_minutes(world: World) -> None:
    names = [f"task-{number:03}" for number in range(MAX_PAIRS)]
    minutes = MAX_HISTORY_PAGE // MAX_PAIRS + 3
    for number in range(minutes):
        measures = [Measure(queue="q", task=name, counts=ONES) for name in names]
        world.engine.record("worker", number + 1, measures)
        world.advance(MINUTE_MS)
    found = list(pages(world.engine))
    assert len(found) > 1
    for page in found:
        assert len(page.measures) <= MAX_HISTORY_PAGE
        assert len(page.measures) % MAX_PAIRS == 0
    rows = measured(world)
    assert [(row.at_ms, row.task) for row in rows] == [
        (START_MS + at * MINUTE_MS, name) for at in range(minutes) for name in names
    ]
    some = world.engine.history(2 * MINUTE_MS).measures
    assert {row.at_ms for row in some} == {world.now_ms - MINUTE_MS, world.now_ms - 2 * MINUTE_MS}


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "9" * 16, "\u0661"])
def test_a_cursor_of_no_history_is_refused(world: World, cursor: str) -> None:
    with pytest.raises(InvalidCursor, match="cursor of a page of the history"):
        world.engine.history(0, cursor=cursor)


# --------------------------------------------------------------------------------- the clock


def test_a_clock_that_is_set_back_does_no_harm(world: World) -> None:
    world.put_many(3)
    tend(world)
    world.advance(-10 * MINUTE_MS)
    world.put_many(2)
    tend(world)
    world.engine.record("worker", 1, [measure(runs=4)])
    world.engine.tend()
    world.advance(10 * MINUTE_MS)
    world.put()
    tend(world)
    earlier = START_MS - 10 * MINUTE_MS
    assert enqueued(world) == {(earlier, "queue", "task"): 2, (START_MS, "queue", "task"): 4}
    assert [row.at_ms for row in sampled(world)] == [earlier, START_MS]
    assert sum(sum(row.counts[1:6]) for row in measured(world)) == 4
    assert world.engine.check() == []


def test_rows_far_ahead_are_removed(world: World) -> None:
    for offset_ms in (2 * KEEP_HOURS_MS, -2 * KEEP_HOURS_MS - MINUTE_MS):
        world.advance(offset_ms)
        world.put()
        world.engine.record("worker", world.now_ms, [measure()])
        tend(world)
    assert {row.at_ms for row in measured(world)} == {world.now_ms}
    assert {row.at_ms for row in sampled(world)} == {world.now_ms}


@pytest.mark.needs(Capability.DURABLE)
def test_a_history_survives_a_restart(world: World) -> None:
    world.put_many(3)
    world.engine.record("worker", 1, [measure()])
    world.engine.tend()
    before = (measured(world), sampled(world), world.engine.stats().enqueued)
    world.reopen()
    assert (measured(world), sampled(world), world.engine.stats().enqueued) == before
    assert world.engine.tend() == Tended()


# ------------------------------------------------------------------------------ the wait of a job


def test_a_job_that_was_due_waits_since_then(world: World) -> None:
    """However late a claim makes it ready."""
    world.put(run_in_ms=1_000)
    world.advance(61_000)
    assert world.take().waited_ms == 60_000


def test_a_retry_waits_since_it_was_due(world: World) -> None:
    world.put()
    world.advance(5)
    claim = world.take()
    assert claim.waited_ms == 5
    world.finish(Retried(id=claim.id, token=claim.token, delay_ms=1_000, error=b""))
    world.advance(1_007)
    assert world.engine.stats().oldest_ready_ms == {}
    assert world.take().waited_ms == 7


def test_a_job_that_returns_to_its_place_waits_since_it_took_it(world: World) -> None:
    world.put()
    world.advance(5)
    claim = world.take()
    world.advance(20)
    world.finish(Released(id=claim.id, token=claim.token, started=True))
    world.advance(5)
    assert world.take().waited_ms == 30


def test_a_repeated_claim_tells_the_same_wait(world: World) -> None:
    world.put_many(2)
    world.advance(5)
    first = world.claim(nonce="nonce-1")
    world.advance(100)
    assert world.claim(nonce="nonce-1").claims == first.claims
    assert {claim.waited_ms for claim in first.claims} == {5}


def test_no_wait_is_negative(world: World) -> None:
    world.put()
    world.advance(-10)
    assert world.take().waited_ms == 0
