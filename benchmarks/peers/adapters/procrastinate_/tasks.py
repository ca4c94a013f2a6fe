"""The tasks of Procrastinate: coroutines, and functions that it runs in threads."""

from __future__ import annotations

import asyncio

from procrastinate import App, PsycopgConnector

from benchmarks.peers.adapters import protocol

app = App(connector=PsycopgConnector(conninfo=protocol.URL, min_size=4, max_size=20))


@app.task(name="noop")
def noop(number: int) -> None:
    protocol.mark()


@app.task(name="noop_async")
async def noop_async(number: int) -> None:
    protocol.mark()


@app.task(name="three")
async def three(number: int, text: str, amount: float) -> None:
    protocol.mark()


@app.task(name="three_long")
async def three_long(number: int, text: str, amount: float) -> None:
    protocol.mark()


@app.task(name="io_async")
async def io_async(number: int) -> None:
    await asyncio.sleep(0.001)
    protocol.mark()


@app.task(name="start_time")
async def start_time() -> None:
    protocol.mark_start_time()


@app.task(name="second")
async def second(number: int) -> None:
    protocol.mark_begin(number)
    await asyncio.sleep(1)
    protocol.mark_end(number)
