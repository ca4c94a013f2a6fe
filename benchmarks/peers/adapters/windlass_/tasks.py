"""The tasks of windlass."""

from __future__ import annotations

import asyncio
import time

from benchmarks.peers.adapters import protocol
from windlass import Windlass

app = Windlass(protocol.URL)


@app.task(name="noop")
def noop(number: int) -> None:
    protocol.mark()


@app.task(name="noop_async")
async def noop_async(number: int) -> None:
    protocol.mark()


@app.task(name="three")
def three(number: int, address: str, amount: float) -> None:
    protocol.mark()


@app.task(name="three_long")
def three_long(number: int, text: str, amount: float) -> None:
    protocol.mark()


@app.task(name="io")
def io(number: int) -> None:
    time.sleep(0.001)
    protocol.mark()


@app.task(name="io_async")
async def io_async(number: int) -> None:
    await asyncio.sleep(0.001)
    protocol.mark()


@app.task(name="start_time")
def start_time() -> None:
    protocol.mark_start_time()


@app.task(name="second")
def second(number: int) -> None:
    protocol.mark_begin(number)
    time.sleep(1)
    protocol.mark_end(number)
