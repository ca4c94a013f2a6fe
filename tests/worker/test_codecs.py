"""Codecs, signatures and encryption through a worker, on every engine."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from tests.worker.yard import until
from windlass import JobFailed, Retry, Windlass
from windlass.core.schedules.state import ScheduleEntry
from windlass.core.states import Hold
from windlass.schedules import Every

SECRET, OLD = "worker-" + "s" * 40, "older-" + "o" * 40
EVERY_BYTE = bytes(range(256))

WAYS: list[dict[str, Any]] = [
    {"codec": "json"},
    {"codec": "msgpack"},
    {"codec": "pickle", "secret": SECRET},
    {"codec": "json", "secret": SECRET, "encrypt": True},
    {"codec": "msgpack", "secret": [OLD, SECRET], "encrypt": True},
    {"codec": "pickle", "secret": SECRET, "encrypt": True},
]


def turn(value: bytes) -> bytes:
    return value[::-1]


def halve(value: Any) -> Any:
    return value / 2


def fail(value: str) -> None:
    raise ValueError(f"no {value}")


def make(url: str, way: dict[str, Any]) -> Windlass:
    app = Windlass(url, retry=Retry(max_attempts=1), **way)
    for function in (turn, halve, fail):
        app.task(name=function.__name__)(function)
    return app


def test_one_worker_runs_what_all_ways_stored(url: str) -> None:
    apps = [make(url, way) for way in WAYS]
    worker = make(url, {"codec": "pickle", "secret": [SECRET, OLD], "encrypt": True})
    jobs = [app.tasks["turn"].enqueue(EVERY_BYTE) for app in apps]
    failing = [app.tasks["fail"].enqueue("luck") for app in apps]
    half = apps[2].tasks["halve"].enqueue(Fraction(1, 3))
    with worker.worker():
        for job in jobs:
            assert worker.tasks["turn"].job(job.id).result(timeout=20) == EVERY_BYTE[::-1]
        assert worker.job(half.id).result(timeout=20) == Fraction(1, 6)
        for job in failing:
            with pytest.raises(JobFailed, match="no luck"):
                worker.job(job.id).result(timeout=20)
    assert apps[0].engine.check() == []
    for app in [*apps, worker]:
        app.close()


def test_each_way_reads_its_own_results_and_failures(url: str) -> None:
    for way in WAYS:
        app = make(url, way)
        with app.worker(slots=2):
            assert app.tasks["turn"].enqueue(EVERY_BYTE).result(timeout=20) == EVERY_BYTE[::-1]
            with pytest.raises(JobFailed) as raised:
                app.tasks["fail"].enqueue("luck").result(timeout=20)
        assert (raised.value.type, raised.value.message) == ("ValueError", "no luck")
        assert "in fail" in raised.value.traceback
        app.close()


@pytest.mark.parametrize(
    ("stranger_has", "advice"),
    [
        ({}, "this app has no secret: give the secret"),
        ({"secret": OLD}, "this app does not have: give it that secret too"),
    ],
)
def test_a_job_waits_for_the_worker_that_has_the_key(
    url: str, stranger_has: dict[str, Any], advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = make(url, stranger_has)
    owner = make(url, {"secret": SECRET, "encrypt": True})
    job = owner.tasks["turn"].enqueue(b"ab")
    with stranger.worker():
        until(lambda: job.info().hold is Hold.UNROUTABLE, "it to be put aside")
    (told,) = [line for line in caplog.messages if "cannot read a job" in line]
    assert told.startswith("cannot read a job of task turn, leaving it to other workers: encrypted")
    assert advice in told
    with owner.worker():
        assert job.result(timeout=20) == b"ba"
    assert job.info().attempts == 1
    for app in (stranger, owner):
        app.close()


def test_an_encrypted_schedule_runs(url: str) -> None:
    app = make(url, {"codec": "msgpack", "secret": SECRET, "encrypt": True})
    app.schedules.save("turning", app.tasks["turn"].bind(b"ab"), Every("1h"))
    [record] = app.engine.get_schedules(["turning"])
    assert record is not None
    assert b"ab" not in ScheduleEntry.unpack(record.body).envelope
    with app.worker():
        assert app.schedules.run_now("turning").result(timeout=20) == b"ba"
    app.close()
