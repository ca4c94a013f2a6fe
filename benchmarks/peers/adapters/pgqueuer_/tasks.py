"""The entry points of PgQueuer, which are coroutines, and the factory of its worker."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job

from benchmarks.peers.adapters import protocol


async def noop_async(job: Job) -> None:
    _arguments(job)
    protocol.mark()


async def three(job: Job) -> None:
    _arguments(job)
    protocol.mark()


async def three_long(job: Job) -> None:
    _arguments(job)
    protocol.mark()


async def io_async(job: Job) -> None:
    _arguments(job)
    await asyncio.sleep(0.001)
    protocol.mark()


async def start_time(job: Job) -> None:
    protocol.mark_start_time()


async def second(job: Job) -> None:
    (number,) = _arguments(job)
    protocol.mark_begin(number)
    await asyncio.sleep(1)
    protocol.mark_end(number)


def _arguments(job: Job) -> list[Any]:
    """PgQueuer stores bytes; other queues decode the arguments of a call."""
    return list(json.loads(job.payload or b"[]"))


async def main() -> PgQueuer:
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(protocol.URL)))
    for function in (noop_async, three, three_long, io_async, start_time, second):
        queuer.entrypoint(function.__name__)(function)
    return queuer
