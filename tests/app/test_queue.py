"""The handle on a queue."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.contract.variants import fresh_url
from windlass import QueueInfo, State, Windlass


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:///:memory:")


def test_a_queue_is_paused_and_resumed(app: Windlass) -> None:
    queue = app.queue("mail")
    assert queue.info() == QueueInfo(
        name="mail", paused=False, ageing=None, max_waiting=None, jobs={}
    )
    queue.pause()
    assert app.queue("mail").info().paused
    assert not app.queue("other").info().paused
    queue.resume()
    assert not queue.info().paused


@pytest.mark.parametrize("limit", [-1, "100", 1.5, True])
def test_a_wrong_limit_is_refused(app: Windlass, limit: Any) -> None:
    with pytest.raises(ValueError, match=f"at least 1, or 0 for no limit, found {limit!r}"):
        app.queue("mail").set(max_waiting=limit)


def test_a_purge_removes_what_waits_and_logs_it(
    app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(queue="mail", name="send")
    def send(number: int) -> None: ...

    send.enqueue_many((number,) for number in range(450))
    send.using(run_after="1h").enqueue(1)
    assert app.queue("mail").info().jobs == {State.READY: 450, State.SCHEDULED: 1}
    bites: list[int] = []
    with caplog.at_level(logging.WARNING, "windlass"):
        assert app.queue("mail").purge(bites.append) == 451
    assert sum(bites) == 451
    assert caplog.messages == ["purged queue mail: 451 jobs removed"]
    assert app.queue("mail").info().jobs == {}


@pytest.mark.parametrize("variant", ["sqlite-file", "redis-4", "postgres"])
def test_coroutines_change_a_queue(variant: str, tmp_path: Path) -> None:
    async def change(app: Windlass) -> None:
        queue = app.queue("mail")
        await queue.apause()
        await queue.aset(ageing="1m", max_waiting=100)
        assert await queue.ainfo() == QueueInfo(
            name="mail",
            paused=True,
            ageing=timedelta(minutes=1),
            max_waiting=100,
            jobs={State.READY: 3},
        )
        await queue.aresume()
        bites: list[int] = []
        assert await queue.apurge(bites.append) == sum(bites) == 3
        assert not (await queue.ainfo()).paused
        with pytest.raises(ValueError, match="at least 1s"):
            await queue.aset(ageing=0.5)

    with Windlass(fresh_url(variant, tmp_path)) as app:
        app.task_named("send", queue="mail").enqueue_many([(1,), (2,), (3,)])
        asyncio.run(change(app))


def test_ageing_is_set_and_taken_away(app: Windlass) -> None:
    queue = app.queue("mail")
    queue.set(ageing="1m")
    queue.set()
    queue.pause()
    assert (queue.info().ageing, queue.info().paused) == (timedelta(minutes=1), True)
    queue.set(ageing=0)
    assert (queue.info().ageing, queue.info().paused) == (None, True)
    with pytest.raises(ValueError, match="at least 1s"):
        queue.set(ageing=0.5)


def test_a_name_that_is_none_is_refused(app: Windlass) -> None:
    with pytest.raises(ValueError, match="found 'a b'"):
        app.queue("a b")


@pytest.mark.parametrize("requires", ["", "a+b", "x" * 33, ["a", "b", "c", "d", "e"], 1, [1]])
def test_labels_that_are_none_are_refused(app: Windlass, requires: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="requires"):
        app.task(requires=requires)


def test_what_a_call_requires_can_be_chosen(app: Windlass) -> None:
    @app.task(name="train", requires=["gpu", "a", "gpu"], queue="models")
    def train() -> None: ...

    assert train.requires == ("a", "gpu")
    info = train.enqueue().info()
    assert (info.queue, info.requires) == ("models", ("a", "gpu"))
    assert train.using(requires=[]).enqueue().info().requires == ()
    assert app.queue("models").info().jobs == {State.READY: 2}
