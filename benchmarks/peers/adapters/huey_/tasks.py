"""The tasks of Huey, on Redis or in a SQLite file, without stored results."""

from __future__ import annotations

import time

from huey import RedisHuey, SqliteHuey

from benchmarks.peers.adapters import protocol

huey = (
    RedisHuey("peers", url=protocol.URL, results=False)
    if protocol.URL.startswith("redis")
    else SqliteHuey("peers", filename=protocol.URL, results=False)
)


@huey.task(name="noop")
def noop(number: int) -> None:
    protocol.mark()


@huey.task(name="three")
def three(number: int, address: str, amount: float) -> None:
    protocol.mark()


@huey.task(name="three_long")
def three_long(number: int, text: str, amount: float) -> None:
    protocol.mark()


@huey.task(name="io")
def io(number: int) -> None:
    time.sleep(0.001)
    protocol.mark()


@huey.task(name="start_time")
def start_time() -> None:
    protocol.mark_start_time()


@huey.task(name="second")
def second(number: int) -> None:
    protocol.mark_begin(number)
    time.sleep(1)
    protocol.mark_end(number)
