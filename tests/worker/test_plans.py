"""Real workers under queue plans: what starts, and in which order."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

import pytest

from tests.worker.apps.scripted import LEDGER
from tests.worker.yard import Yard
from windlass import State
from windlass.errors import SettingError
from windlass.worker.options import WorkerOptions


def enqueue(yard: Yard, queue: str, number: int, *steps: str) -> None:
    task = yard.script.plain.using(queue=queue)
    task.enqueue_many(task.bind(f"{queue}-{n}", list(steps)) for n in range(number))


def started(yard: Yard) -> list[str]:
    return [line.label.split("-")[0] for line in yard.events("start")]


@pytest.mark.local
def test_weights_and_tiers_decide_what_starts(yard: Yard) -> None:
    enqueue(yard, "critical", 12)
    enqueue(yard, "default", 200)
    enqueue(yard, "low", 40)
    worker = yard.start(queues=["critical", "default:5,low:1"], slots=1, burst=True)
    assert worker.wait(60) == 0
    starts = started(yard)
    assert starts[:12] == ["critical"] * 12
    lows = list(accumulate(queue == "low" for queue in starts[12:]))
    # With one slot they start in turn, and each queue is within one job of its share.
    assert all(abs(number - at / 6) <= 1 for at, number in enumerate(lows, 1))
    assert Counter(starts) == {"critical": 12, "default": 200, "low": 40}


def test_a_strict_tier_comes_first_while_the_worker_runs(yard: Yard) -> None:
    enqueue(yard, "low", 8, "sleep:0.05")
    worker = yard.start(queues=["critical", "low"], slots=1)
    yard.await_start("low-0")
    enqueue(yard, "critical", 2)
    yard.await_count(State.SUCCEEDED, 10)
    assert worker.stop() == 0
    assert "critical" in started(yard)[1:4]


def test_a_worker_inside_serves_by_weight_too(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEDGER, str(yard.ledger))
    enqueue(yard, "default", 40)
    enqueue(yard, "low", 8)
    with yard.app.worker(queues=["default:5,low:1"], slots=1):
        yard.await_count(State.SUCCEEDED, 48)
    assert Counter(started(yard)[:24])["low"] in (3, 4, 5)


def test_a_plan_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(SettingError, match="named twice"):
        WorkerOptions("app", ("a:2", "b,a"))


def test_a_pause_counts_for_workers_that_run(yard: Yard) -> None:
    yard.start(queues=(), slots=1)
    yard.await_state(yard.plain("warm"), State.SUCCEEDED)
    queue = yard.app.queue("default")
    queue.pause()
    enqueue(yard, "default", 3)
    enqueue(yard, "other", 1)
    yard.await_start("other-0")
    assert queue.info().jobs[State.READY] == 3
    queue.resume()
    yard.await_count(State.SUCCEEDED, 5)
    assert Counter(started(yard)) == {"warm": 1, "other": 1, "default": 3}


@pytest.mark.local
def test_labels_decide_who_runs_a_job(yard: Yard) -> None:
    task = yard.script.plain.using(requires="gpu")
    task.enqueue("gpu-0", [])
    plain = yard.start(burst=True)
    assert plain.wait(60) == 0
    assert started(yard) == []
    worker = yard.start(labels=["gpu", "large"])
    yard.await_start("gpu-0")
    job = task.enqueue("gpu-1", ["die"])
    yard.await_start("gpu-1", 2)  # then alone, in a child with these labels
    assert job.info().requires == ("gpu",)
    assert job.info().queue == "default"
    assert "labels gpu, large" in worker.log()
