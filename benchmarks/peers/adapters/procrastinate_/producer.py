"""The enqueue calls of Procrastinate: coroutines, with a connection pool."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.peers.adapters.procrastinate_.tasks import app
from benchmarks.peers.adapters.protocol import CALLERS, arguments, serve

CHUNK = 1000
NAMES = ("number", "text", "amount")


def call(name: str, number: int) -> dict[str, Any]:
    return dict(zip(NAMES, arguments(name, number), strict=False))


class ProcrastinateProducer:
    async def single(self, name: str, count: int) -> None:
        task = app.tasks[name]
        for number in range(count):
            await task.defer_async(**call(name, number))

    async def bulk(self, name: str, count: int) -> None:
        task = app.tasks[name]
        for first in range(0, count, CHUNK):
            numbers = range(first, min(first + CHUNK, count))
            await task.batch_defer_async(*(call(name, number) for number in numbers))

    async def concurrent(self, name: str, count: int) -> None:
        task = app.tasks[name]

        async def caller(first: int) -> None:
            for number in range(first, count, CALLERS):
                await task.defer_async(**call(name, number))

        await asyncio.gather(*map(caller, range(CALLERS)))


async def connected() -> ProcrastinateProducer:
    await app.open_async()
    return ProcrastinateProducer()


if __name__ == "__main__":
    loop = asyncio.Runner()
    serve(loop.run(connected()), loop)
