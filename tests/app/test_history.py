"""The history of an app, and the load of its queues, from measures and samples of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from tests.app.past import Past
from tests.contract.variants import fresh_url
from tests.worker.faulty import Faulty
from windlass import Windlass
from windlass.core.durations import instant
from windlass.core.history import HOUR_MS, MINUTE_MS
from windlass.engine.contract import Engine
from windlass.history import StepName
from windlass.queue_loads import read_loads

SEND = "shop.mail.send"


@pytest.fixture(params=["sqlite-file-normal", "redis-4", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Windlass]:
    with Windlass(fresh_url(request.param, tmp_path)) as app:
        app.task(name=SEND, queue="mail")(nothing)
        app.task(name="shop.charge", queue="payments")(nothing)
        yield app


@pytest.fixture
def past(app: Windlass) -> Past:
    return Past(app)


def nothing() -> None:
    """A task."""


def enqueue(app: Windlass, number: int, task: str = SEND) -> None:
    app.enqueue_many(app.tasks[task].bind() for _ in range(number))


def live(past: Past, minutes: int, **outcomes: int) -> None:
    """Enqueue 60 jobs and end some runs in each minute, as tended workers do."""
    for minute in range(minutes):
        past.go_to(minute)
        past.tend()
        enqueue(past.app, 60)
        past.record("mail", SEND, **outcomes)
    past.go_to(minutes)
    past.tend()


# ---------------------------------------------------------------------------------------- history


def test_a_history_has_counts_rates_and_quantiles(app: Windlass, past: Past) -> None:
    live(past, 3, succeeded=30, retried=10)
    past.go_to(3.5)
    history = app.history("10m")
    assert history.step == "minute"
    activity = history.queues["mail"]
    assert history.tasks == {SEND: activity}
    assert activity.enqueued == 180
    assert activity.outcomes == {
        "succeeded": 90, "retried": 30, "dead": 0, "snoozed": 0, "released": 0
    }  # fmt: skip
    assert activity.runs == 120
    assert activity.failure_rate == 0.25
    assert activity.mean_run_s == pytest.approx(2)
    assert 1 <= (activity.run_p50_s or 0) <= 2.5
    assert 0.05 <= (activity.wait_p99_s or 0) <= 0.1
    assert activity.in_rate == pytest.approx(1, rel=0.05)
    assert activity.out_rate == pytest.approx(120 / 210, rel=0.05)


def test_rows_are_those_of_each_step(app: Windlass, past: Past) -> None:
    past.go_to(0)
    past.record(succeeded=6)
    past.record("payments", "shop.charge", dead=3)
    past.go_to(1)
    past.record(succeeded=30)
    past.go_to(1.5)
    rows = app.history("10m").rows
    first, second = instant(past.first_ms), instant(past.first_ms + MINUTE_MS)
    assert [(row.at, row.queue, row.task, row.runs) for row in rows] == [
        (first, "mail", SEND, 6),
        (first, "payments", "shop.charge", 3),
        (second, "mail", SEND, 30),
    ]
    assert rows[0].out_rate == pytest.approx(0.1)
    assert rows[1].failure_rate == 1
    assert rows[2].out_rate == pytest.approx(1, rel=0.05), "half of the minute is over"


def test_depths_are_samples_of_queues(app: Windlass, past: Past) -> None:
    past.go_to(0)
    enqueue(app, 5)
    past.go_to(2)
    past.tend()
    (depth,) = app.history("10m").depths
    assert (depth.queue, depth.ready, depth.running, depth.dead) == ("mail", 5, 0, 0)
    assert depth.at == instant(past.first_ms + 2 * MINUTE_MS)
    assert depth.oldest_s == pytest.approx(120, abs=5)


def test_a_history_is_filtered(app: Windlass, past: Past) -> None:
    past.go_to(0)
    past.tend()
    enqueue(app, 1)
    enqueue(app, 1, "shop.charge")
    past.record(succeeded=6)
    past.record("payments", "shop.charge", dead=3)
    past.go_to(1)
    past.tend()
    mail = app.history("10m", queue="mail")
    assert set(mail.queues) == {row.queue for row in mail.rows} == {"mail"}
    assert {depth.queue for depth in mail.depths} == {"mail"}
    charged = app.history("10m", task=app.tasks["shop.charge"])
    assert set(charged.tasks) == {row.task for row in charged.rows} == {"shop.charge"}
    assert set(charged.queues) == {"payments"}
    assert app.history("10m", queue="nope").rows == ()


def test_a_history_ends_where_since_begins(app: Windlass, past: Past) -> None:
    past.go_to(0)
    past.record(succeeded=1)
    past.go_to(30)
    past.record(succeeded=2)
    past.go_to(40)
    assert [row.runs for row in app.history("1h").rows] == [1, 2]
    assert [row.runs for row in app.history("10m").rows] == [2]
    since = instant(past.first_ms + 30 * MINUTE_MS)
    assert [row.runs for row in app.history(since).rows] == [2]


def test_time_that_passes_while_it_is_read_hides_nothing(app: Windlass, past: Past) -> None:
    past.go_to(0)
    past.record(succeeded=1)
    since = instant(past.first_ms)
    engine = app.engine
    faulty = Faulty(engine)

    def pass_time(real: Callable[[], object], _arguments: object) -> object:
        engine.clock_offset_ms += 200
        return real()

    with app.replace_engine(cast(Engine, faulty)):
        faulty.faults["history"] = pass_time
        assert [row.runs for row in app.history(since).rows] == [1]
        assert faulty.calls.count("history") == 1


def test_hours_are_added_up_from_minutes_and_from_hours(app: Windlass, past: Past) -> None:
    """Also an hour whose minutes the engine has moved only in part."""
    past.first_ms += HOUR_MS - past.first_ms % HOUR_MS
    runs = {0: 1, 59: 2, 60: 4, 24 * 60: 8, 26 * 60 + 10: 16}
    for minute, number in runs.items():
        past.go_to(minute)
        past.record(succeeded=number)
    past.go_to(24 * 60 + 30)
    past.tend()
    past.go_to(26 * 60 + 10)
    history = app.history("2d", step="hour")
    hours = [(row.at - instant(past.first_ms)) // timedelta(hours=1) for row in history.rows]
    assert dict(zip(hours, (row.runs for row in history.rows), strict=True)) == {
        0: 3, 1: 4, 24: 8, 26: 16
    }  # fmt: skip
    assert history.queues["mail"].runs == 31


def test_an_hour_has_the_largest_samples(app: Windlass, past: Past) -> None:
    past.first_ms += HOUR_MS - past.first_ms % HOUR_MS
    for minute, number in enumerate((3, 4)):
        past.go_to(minute)
        enqueue(app, number)
        past.tend()
    app.queue("mail").purge()
    past.go_to(2)
    enqueue(app, 1)
    past.tend()
    (depth,) = app.history("1h", step="hour").depths
    assert depth.ready == 7


def test_the_twin_reads_the_same(app: Windlass, past: Past) -> None:
    past.go_to(0)
    past.record(succeeded=1)
    assert asyncio.run(app.ahistory("10m")).queues["mail"].runs == 1
    with pytest.raises(ValueError, match="step must be one of"):
        asyncio.run(app.ahistory("10m", step=cast("StepName", "second")))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"since": "25h"}, r'at most 1d ago .* minute, found 1d1h: the step "hour" goes back'),
        ({"since": "31d", "step": "hour"}, r"at most 30d ago with the step hour, found 31d"),
        ({"since": "1h", "step": "second"}, r"step must be one of minute, hour, found 'second'"),
        ({"since": "1h", "queue": "a b"}, r"queue must be"),
        ({"since": datetime.now(UTC) + timedelta(days=1)}, r"since must be before now"),
        ({"since": datetime(2026, 1, 1)}, r"with a time zone"),  # noqa: DTZ001  # refused
        ({"since": "soon"}, r"since must be"),
    ],
)
def test_what_cannot_be_read_is_refused(
    app: Windlass, arguments: dict[str, object], message: str
) -> None:
    history: object = app.history
    assert callable(history)
    with pytest.raises(ValueError, match=message):
        history(**arguments)


def test_jobs_that_left_before_the_sample_count(app: Windlass, past: Past) -> None:
    """A minute in which jobs were counted is a sampled one, even if no queue has a job then."""
    for minute in range(4):
        past.go_to(minute)
        past.tend()
        enqueue(app, 60)
        app.queue("mail").purge()
    past.go_to(4)
    past.tend()
    history = app.history("10m")
    assert history.depths == ()
    assert history.queues["mail"].in_rate == pytest.approx(1, rel=0.05)


# ------------------------------------------------------------------------------------------- loads


def test_a_load_has_the_rates_of_the_last_minutes(app: Windlass, past: Past) -> None:
    live(past, 7, succeeded=30)
    past.go_to(7.5)
    (load,) = read_loads(app.engine)
    assert (load.queue, load.ready, load.running) == ("mail", 420, 0)
    assert load.in_rate == pytest.approx(1, rel=0.05)
    assert load.out_rate == pytest.approx(0.5, rel=0.2)
    assert load.mean_run_s == pytest.approx(2)
    assert load.drain_s is None, "more jobs enter than leave"
    assert load.demand_slots == 2 + 420 * 2 // 60


def test_jobs_that_were_just_enqueued_are_ready_and_not_yet_a_rate(
    app: Windlass, past: Past
) -> None:
    live(past, 2, succeeded=60)
    past.go_to(2.5)
    (before,) = read_loads(app.engine)
    enqueue(app, 600)
    (load,) = read_loads(app.engine)
    assert load.in_rate == pytest.approx(before.in_rate, rel=0.02)
    assert load.ready == before.ready + 600
    assert load.demand_slots == before.demand_slots + 600 * 2 // 60


def test_a_load_is_that_of_the_last_minutes_after_the_clock_was_set_back(
    app: Windlass, past: Past
) -> None:
    live(past, 20, succeeded=60)
    past.go_to(6.5)
    (load,) = read_loads(app.engine)
    assert load.out_rate == pytest.approx(1, rel=0.2)


def test_a_load_of_long_ago_is_forgotten(app: Windlass, past: Past) -> None:
    live(past, 2, succeeded=60)
    past.go_to(20)
    (load,) = read_loads(app.engine)
    assert (load.in_rate, load.out_rate, load.mean_run_s) == (0, 0, None)
    assert load.demand_slots == 2, "a run is assumed to take a second"


def test_loads_are_those_of_the_queues_that_were_named(app: Windlass, past: Past) -> None:
    past.go_to(0)
    enqueue(app, 3)
    app.tasks["shop.charge"].using(requires=["gpu"]).enqueue()
    app.tasks["shop.charge"].enqueue()
    app.queue("paused").pause()
    assert [load.queue for load in read_loads(app.engine)] == ["mail", "paused", "payments"]
    payments, nope, mail = read_loads(app.engine, ["payments", "nope", "mail"])
    assert (payments.queue, payments.ready) == ("payments", 2)
    assert (nope.queue, nope.ready, nope.demand_slots, nope.drain_s) == ("nope", 0, 0, 0.0)
    assert mail.ready == 3
    (paused,) = read_loads(app.engine, ["paused"])
    assert paused.paused
