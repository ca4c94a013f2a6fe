"""Large values over a slow link: forty calls of a megabyte are put, and forty results of a megabyte
reported, in little more than the time that the link needs; SQLite stores eighteen results of 28
megabytes. Every job runs once, and no worker logs an outage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.postgres_server import OWNER, PostgresServer
from tests.proxy import Proxy
from tests.redis_server import RedisServer
from tests.worker.bulk import Bulk
from tests.worker.yard import Yard
from windlass import State, Windlass

SPEED: Final = 4_000_000
MEGABYTE: Final = 1_000_000
NUMBER: Final = 40
#: The time limit, as a multiple of the transfer time of the link.
TOLERANCE: Final = 2.0
LARGE: Final = 28 * 1024 * 1024
LARGE_NUMBER: Final = 18


def prove(folder: Path) -> Iterator[str]:
    redis, postgres = RedisServer(), PostgresServer()
    places = {
        "redis": Place(redis.port, redis.url),
        "redis-4": Place(redis.port, partial(redis.url, partitions=4)),
        "postgres": Place(postgres.port, lambda: postgres.url(postgres.new_database(), user=OWNER)),
    }
    try:
        for name, place in places.items():
            yield f"{name}: {_put(place)}"
            for stops in (False, True):
                own = folder / f"{name}-{stops}"
                own.mkdir()
                yield f"{name}: {_report(place, own, stops=stops)}"
    finally:
        redis.end()
        postgres.end()
    yield from _report_to_sqlite(folder)


class Place(NamedTuple):
    """A server behind the link."""

    port: int
    fresh_url: Callable[[], str]


def _put(place: Place) -> str:
    with Proxy(place.port) as link:
        link.throttle(SPEED)
        with Windlass(place.fresh_url().replace(f":{place.port}/", f":{link.port}/")) as app:
            task = app.task(name="note")(_note)
            started = time.monotonic()
            task.enqueue_many([("x" * (MEGABYTE - 1_000),)] * NUMBER)
            seconds = time.monotonic() - started
            assert app.engine.stats().totals["enqueued"] == NUMBER
    _check_time(seconds)
    return f"{NUMBER} calls of 1 MB put over 4 MB/s in {seconds:.1f} s"


def _note(text: str) -> None:
    """Never run."""


def _report(place: Place, folder: Path, *, stops: bool) -> str:
    yard = Yard(folder, "30s", "25s", 3, place.fresh_url())
    with Proxy(place.port) as link:
        bulk = Bulk(yard, link)
        bulk.enqueue(NUMBER, MEGABYTE)
        link.throttle(SPEED)
        worker = bulk.start(NUMBER)
        bulk.end_all(NUMBER)
        started = time.monotonic()
        if stops:
            assert worker.stop() == 0
        yard.await_count(State.SUCCEEDED, NUMBER)
        seconds = time.monotonic() - started
        if not stops:
            assert worker.stop() == 0
    _check_time(seconds)
    assert len(yard.events("start")) == NUMBER
    assert "lost connection to engine" not in worker.log()
    yard.close()
    when = "after SIGTERM" if stops else "at work"
    return f"{NUMBER} results of 1 MB reported {when} in {seconds:.1f} s"


def _check_time(seconds: float) -> None:
    assert seconds < TOLERANCE * NUMBER * MEGABYTE / SPEED, seconds


def _report_to_sqlite(folder: Path) -> Iterator[str]:
    yard = Yard(folder, "30s", "25s", 3)
    bulk = Bulk(yard)
    bulk.enqueue(LARGE_NUMBER, LARGE)
    worker = bulk.start(LARGE_NUMBER)
    bulk.end_all(LARGE_NUMBER)
    started = time.monotonic()
    yard.await_count(State.SUCCEEDED, LARGE_NUMBER, seconds=120.0)
    seconds = time.monotonic() - started
    assert worker.stop() == 0
    assert len(yard.events("start")) == LARGE_NUMBER
    assert "lost connection to engine" not in worker.log()
    yard.close()
    yield f"sqlite: {LARGE_NUMBER} results of 28 MB reported in {seconds:.1f} s, each run once"
