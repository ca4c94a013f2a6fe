"""The enqueue calls of PgQueuer: coroutines, on uvloop, with a connection pool if concurrent."""

from __future__ import annotations

import asyncio
import json

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from benchmarks.peers.adapters.protocol import CALLERS, URL, arguments, serve

CHUNK = 1000
CONNECTIONS = 20


def payload(name: str, number: int) -> bytes:
    return json.dumps(arguments(name, number)).encode()


class PgQueuerProducer:
    def __init__(self, connection: asyncpg.Connection, pool: asyncpg.Pool) -> None:
        self.queries = Queries(AsyncpgDriver(connection))
        self.pooled = Queries(AsyncpgPoolDriver(pool))

    async def single(self, name: str, count: int) -> None:
        for number in range(count):
            await self.queries.enqueue(name, payload(name, number))

    async def bulk(self, name: str, count: int) -> None:
        for first in range(0, count, CHUNK):
            numbers = range(first, min(first + CHUNK, count))
            payloads = [payload(name, number) for number in numbers]
            await self.queries.enqueue([name] * len(payloads), payloads, [0] * len(payloads))

    async def concurrent(self, name: str, count: int) -> None:
        async def caller(first: int) -> None:
            for number in range(first, count, CALLERS):
                await self.pooled.enqueue(name, payload(name, number))

        await asyncio.gather(*map(caller, range(CALLERS)))


async def connected() -> PgQueuerProducer:
    connection = await asyncpg.connect(URL)
    pool = await asyncpg.create_pool(URL, min_size=CONNECTIONS, max_size=CONNECTIONS)
    return PgQueuerProducer(connection, pool)


if __name__ == "__main__":
    loop = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    serve(loop.run(connected()), loop)
