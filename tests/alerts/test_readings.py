"""What rules watch, read from real engines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from tests.alerts.helpers import bury
from windlass import Alert, Every, Windlass
from windlass.alerts.readings import LEAST_WAIT_MS, Readings, ServedLines
from windlass.core.alerts.states import Reading
from windlass.core.history import OUTCOMES, Tally
from windlass.core.introduction import Introduction
from windlass.core.queues.plans import queue_names
from windlass.engine.contract import Beat, Measure, SessionCommand


def read(app: Windlass, rule: Alert) -> dict[str, float]:
    return {
        subject: reading.value for subject, reading in Readings(app.engine, [rule]).of(rule).items()
    }


def wait(app: Windlass, seconds: float) -> None:
    app.engine.clock_offset_ms += int(seconds * 1000)


def test_dead_letters_of_all_queues_or_of_one(app: Windlass) -> None:
    bury(app, 2)
    assert read(app, Alert.dead_letters(1)) == {"": 2}
    assert read(app, Alert.dead_letters(1, queue="default")) == {"default": 2}
    assert read(app, Alert.dead_letters(1, queue="mail")) == {"mail": 0}


def test_the_age_of_queues(app: Windlass) -> None:
    task = app.tasks["number"]
    assert read(app, Alert.oldest_age(1)) == {}
    task.enqueue(1)
    task.using(queue="mail", requires="gpu").enqueue(1)
    wait(app, 60)
    task.using(queue="mail").enqueue(1)
    ages = read(app, Alert.oldest_age(1))
    assert set(ages) == {"default", "mail"}
    assert all(60 <= age < 65 for age in ages.values())
    assert set(read(app, Alert.oldest_age(1, queue="mail"))) == {"mail"}


def test_queues_without_a_worker(app: Windlass) -> None:
    rule = Alert.no_worker()
    task = app.tasks["number"]
    for queue in ("mail", "mail", "web"):
        task.using(queue=queue).enqueue(1)
    assert read(app, rule) == {}, "a worker may be about to claim them"
    wait(app, LEAST_WAIT_MS / 1000)
    assert read(app, rule) == {"mail": 2, "web": 1}
    app.engine.beat([Beat(session="a", info=Introduction(queues=("web",)).pack())])
    assert read(app, rule) == {"mail": 2}
    app.engine.beat([Beat(session="b", info=Introduction().pack())])
    assert read(app, rule) == {}
    app.engine.command(["b"], SessionCommand.QUIET)
    assert read(app, rule) == {"mail": 2}, "a quiet worker claims nothing"
    wait(app, 60)
    assert read(app, rule) == {"mail": 2, "web": 1}, "both are dead"


def test_each_worker_is_read_once_however_many_queues_wait(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Sequence[str]] = []

    def count(texts: Sequence[str]) -> tuple[str, ...]:
        calls.append(texts)
        return queue_names(texts)

    monkeypatch.setattr("windlass.alerts.readings.queue_names", count)
    for number in range(20):
        app.tasks["number"].using(queue=f"q{number}").enqueue(1)
    infos = [Introduction(queues=(f"w{number}",)).pack() for number in range(20)]
    app.engine.beat([Beat(session=f"s{at}", info=info) for at, info in enumerate(infos)])
    wait(app, LEAST_WAIT_MS / 1000)
    assert len(read(app, Alert.no_worker())) == 20
    assert len(calls) == 20


@pytest.mark.parametrize(
    ("worker", "line", "expected"),
    [
        (Introduction(), "mail", True),
        (Introduction(), "mail+gpu", False),
        (Introduction(labels=("gpu",)), "mail+gpu", True),
        (Introduction(queues=("web", "mail:5,low:1")), "low", True),
        (Introduction(queues=("web", "mail:5,low:1")), "other", False),
        (Introduction(queues=("?",)), "other", True),
        (Introduction(is_solo=True), "mail", False),
    ],
)
def test_which_worker_serves_a_line(worker: Introduction, line: str, expected: bool) -> None:
    assert (line in ServedLines([worker])) is expected


def test_failures_and_run_times_of_tasks(app: Windlass) -> None:
    good, bad = Tally(), Tally()
    for number in range(100):
        good.add(OUTCOMES.index("succeeded"), 0, 0.2)
        bad.add(OUTCOMES.index("retried" if number < 25 else "succeeded"), 0, 20)
    few = Tally()
    few.add(OUTCOMES.index("dead"), 0, 0.2)
    app.engine.record(
        "me",
        1,
        [
            Measure(queue="a", task="good", counts=tuple(good.counts)),
            Measure(queue="a", task="bad", counts=tuple(bad.counts)),
            Measure(queue="b", task="bad", counts=tuple(good.counts)),
            Measure(queue="b", task="few", counts=tuple(few.counts)),
        ],
    )
    rule = Alert.failure_rate(0.1)
    assert Readings(app.engine, [rule]).of(rule) == {
        "good": Reading(0),
        "bad": Reading(0.125),
        "few": Reading(1, is_enough=False),
    }
    times = read(app, Alert.run_time(1))
    assert times["good"] <= 0.25 < 10 < times["bad"] <= 30
    assert set(read(app, Alert.run_time(1, task="bad"))) == {"bad"}
    wait(app, -3600)
    assert read(app, rule) == {}, "these runs were before the clock was set back"
    wait(app, 3600 + 400)
    assert read(app, rule) == {}


def test_overdue_schedules(app: Windlass) -> None:
    task = app.task(name="report")(report)
    app.schedules.save("late", task.bind(), Every(timedelta(minutes=1)))
    app.schedules.save("other", task.bind(), Every(timedelta(days=365)))
    app.schedules.save("paused", task.bind(), Every(timedelta(minutes=1)))
    app.schedules.pause("paused")
    rule = Alert.overdue_schedule()
    assert read(app, rule) == {}
    wait(app, 60 + 600)
    [(name, overdue)] = read(app, rule).items()
    assert name == "late"
    assert 540 <= overdue < 665


def report() -> None:
    """A task without arguments."""


def test_the_memory_of_the_engine(app: Windlass) -> None:
    space = app.engine.space()
    assert space.used > 0
    if app.engine.location.startswith("postgresql"):  # which knows no limit of its disk
        assert read(app, Alert.engine_memory()) == {}
        return
    [(subject, share)] = read(app, Alert.engine_memory()).items()
    assert subject == ""
    assert 0 < share < 1
    assert space.used < space.limit


def test_an_engine_in_memory_has_no_limit() -> None:
    with Windlass("sqlite:///:memory:") as app:
        assert read(app, Alert.engine_memory()) == {}


def test_the_engine_s_clock(app: Windlass) -> None:
    before = Readings(app.engine, []).at_ms
    wait(app, 3600)
    assert Readings(app.engine, []).at_ms - before >= 3_600_000
