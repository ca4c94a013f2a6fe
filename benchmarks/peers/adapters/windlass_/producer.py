"""The enqueue calls of windlass."""

from __future__ import annotations

import asyncio

from benchmarks.peers.adapters.protocol import CALLERS, arguments, serve
from benchmarks.peers.adapters.windlass_.tasks import app


class WindlassProducer:
    def single(self, name: str, count: int) -> None:
        enqueue = app.tasks[name].enqueue
        for number in range(count):
            enqueue(*arguments(name, number))

    def bulk(self, name: str, count: int) -> None:
        app.tasks[name].enqueue_many(arguments(name, number) for number in range(count))

    async def concurrent(self, name: str, count: int) -> None:
        enqueue = app.tasks[name].aenqueue

        async def caller(first: int) -> None:
            for number in range(first, count, CALLERS):
                await enqueue(*arguments(name, number))

        await asyncio.gather(*map(caller, range(CALLERS)))


if __name__ == "__main__":
    with app:
        serve(WindlassProducer())
