"""`task.pause()` and `task.resume()`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.hand import Hand
from tests.contract.variants import fresh_url
from windlass import Hold, State, Windlass
from windlass.engine.contract import NewJob


@pytest.fixture(params=["sqlite-file", "redis", "redis-4", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Windlass]:
    with Windlass(fresh_url(request.param, tmp_path)) as app:
        app.task(name="charge", aliases=["pay"])(charge)
        app.task(name="mail")(mail)
        yield app


def charge(order: int) -> None:
    """A task."""


def mail(to: str) -> None:
    """Another one, in the same queue."""


def claimed(hand: Hand) -> list[str]:
    """The tasks of all jobs that a worker may claim."""
    found = []
    while claims := hand.find():
        found += [claim.task for claim in claims]
    return sorted(found)


def test_a_paused_task_waits_and_others_run(app: Windlass) -> None:
    """Also its jobs under a former name, and in another queue."""
    task, hand = app.tasks["charge"], Hand(app)
    first = task.enqueue(1)
    app.task_named("charge").pause()
    task.using(queue="bulk").enqueue(2)
    app.engine.put([old_job(app)])
    app.tasks["mail"].enqueue("ann")
    assert claimed(hand) == ["mail"]
    assert (first.info().state, first.info().hold) == (State.READY, Hold.PAUSED)
    task.resume()
    assert first.info().hold is Hold.NONE
    assert claimed(hand) == ["charge", "charge", "pay"]
    assert app.engine.check() == []


def old_job(app: Windlass) -> NewJob:
    """A job that was enqueued before the task was renamed."""
    payload = app.task_named("pay").bind(3).new_job().payload
    return NewJob(
        id=app.engine.new_id("pay", "default", None), task="pay", queue="default", payload=payload
    )


def test_coroutines_pause_and_resume(app: Windlass) -> None:
    task, hand = app.tasks["charge"], Hand(app)
    asyncio.run(task.apause())
    task.enqueue(1)
    assert claimed(hand) == []
    asyncio.run(task.aresume())
    assert claimed(hand) == ["charge"]
