"""An enqueue into a queue that is full."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Timer

import pytest

from windlass import QueueFull, Windlass
from windlass.task import Task


@pytest.fixture
def make_app() -> Iterator[Callable[..., Windlass]]:
    """Apps in memory, which are closed at the end."""
    with ExitStack() as opened:
        yield lambda **settings: opened.enter_context(Windlass("sqlite:///:memory:", **settings))


def full(app: Windlass) -> Task[[int], None]:
    @app.task(name="load", queue="imports")
    def load(number: int) -> None: ...

    app.queue("imports").set(max_waiting=3)
    load.enqueue_many((number,) for number in range(3))
    return load


def test_it_is_refused(make_app: Callable[..., Windlass]) -> None:
    load = full(make_app())
    with pytest.raises(QueueFull, match="The queue imports is full: this call of load") as caught:
        load.enqueue(1)
    error = caught.value
    assert (error.queue, error.task, error.seconds) == ("imports", "load", 0.0)
    with pytest.raises(QueueFull):
        asyncio.run(load.aenqueue(1))


def test_many_tell_how_many_went_in(make_app: Callable[..., Windlass]) -> None:
    app = make_app()
    load = full(app)
    app.queue("imports").set(max_waiting=10)
    with pytest.raises(QueueFull) as caught:
        load.enqueue_many((number,) for number in range(9))
    assert caught.value.__notes__ == ["7 jobs were enqueued before this."]
    with pytest.raises(QueueFull) as caught:
        asyncio.run(load.aenqueue_many((number,) for number in range(2)))
    assert caught.value.__notes__ == ["0 jobs were enqueued before this."]


@pytest.mark.parametrize("way", ["enqueue", "aenqueue", "enqueue_many", "aenqueue_many"])
def test_it_waits_for_room(make_app: Callable[..., Windlass], way: str) -> None:
    app = make_app(when_full="block", enqueue_timeout=20)
    load = full(app)
    Timer(0.1, app.queue("imports").purge).start()
    calls = [(1,), (2,)]
    match way:
        case "enqueue":
            assert load.enqueue(1).created
        case "aenqueue":
            assert asyncio.run(load.aenqueue(1)).created
        case "enqueue_many":
            assert len(load.enqueue_many(calls)) == 2
        case _:
            assert len(asyncio.run(load.aenqueue_many(calls))) == 2


def test_it_does_not_wait_for_ever(make_app: Callable[..., Windlass]) -> None:
    load = full(make_app(when_full="block", enqueue_timeout=0.1))
    with pytest.raises(QueueFull, match=r"no room was made within 0.1 s") as caught:
        load.enqueue(1)
    assert str(caught.value).endswith("With a larger enqueue_timeout an enqueue waits longer.")
