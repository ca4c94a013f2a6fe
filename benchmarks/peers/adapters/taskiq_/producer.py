"""The enqueue calls of Taskiq: coroutines, on uvloop. It has no bulk call."""

from __future__ import annotations

import asyncio

import uvloop

from benchmarks.peers.adapters.protocol import CALLERS, arguments, serve
from benchmarks.peers.adapters.taskiq_ import tasks


class TaskiqProducer:
    async def single(self, name: str, count: int) -> None:
        enqueue = getattr(tasks, name).kiq
        for number in range(count):
            await enqueue(*arguments(name, number))

    async def concurrent(self, name: str, count: int) -> None:
        enqueue = getattr(tasks, name).kiq

        async def caller(first: int) -> None:
            for number in range(first, count, CALLERS):
                await enqueue(*arguments(name, number))

        await asyncio.gather(*map(caller, range(CALLERS)))


if __name__ == "__main__":
    loop = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    loop.run(tasks.broker.startup())
    serve(TaskiqProducer(), loop)
