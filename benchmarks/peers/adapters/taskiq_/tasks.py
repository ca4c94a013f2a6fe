"""The tasks of Taskiq on Redis streams, without a result backend."""

from __future__ import annotations

import asyncio
import time

from taskiq_redis import RedisStreamBroker

from benchmarks.peers.adapters import protocol

# The consumer group starts at the first message, so that jobs can be stored before a worker starts.
broker = RedisStreamBroker(protocol.URL, consumer_id="0")


@broker.task(task_name="noop")
def noop(number: int) -> None:
    protocol.mark()


@broker.task(task_name="noop_async")
async def noop_async(number: int) -> None:
    protocol.mark()


@broker.task(task_name="three")
async def three(number: int, address: str, amount: float) -> None:
    protocol.mark()


@broker.task(task_name="three_long")
async def three_long(number: int, text: str, amount: float) -> None:
    protocol.mark()


@broker.task(task_name="io")
def io(number: int) -> None:
    time.sleep(0.001)
    protocol.mark()


@broker.task(task_name="io_async")
async def io_async(number: int) -> None:
    await asyncio.sleep(0.001)
    protocol.mark()


@broker.task(task_name="start_time")
async def start_time() -> None:
    protocol.mark_start_time()


@broker.task(task_name="second")
async def second(number: int) -> None:
    protocol.mark_begin(number)
    await asyncio.sleep(1)
    protocol.mark_end(number)
