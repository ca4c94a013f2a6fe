"""The tasks of Dramatiq, without results."""

from __future__ import annotations

import asyncio
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AsyncIO

from benchmarks.peers.adapters import protocol

broker = RedisBroker(url=protocol.URL)
broker.add_middleware(AsyncIO())
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="noop")
def noop(number: int) -> None:
    protocol.mark()


@dramatiq.actor(actor_name="noop_async")
async def noop_async(number: int) -> None:
    protocol.mark()


@dramatiq.actor(actor_name="three")
def three(number: int, address: str, amount: float) -> None:
    protocol.mark()


@dramatiq.actor(actor_name="three_long")
def three_long(number: int, text: str, amount: float) -> None:
    protocol.mark()


@dramatiq.actor(actor_name="io")
def io(number: int) -> None:
    time.sleep(0.001)
    protocol.mark()


@dramatiq.actor(actor_name="io_async")
async def io_async(number: int) -> None:
    await asyncio.sleep(0.001)
    protocol.mark()


@dramatiq.actor(actor_name="start_time")
def start_time() -> None:
    protocol.mark_start_time()


@dramatiq.actor(actor_name="second")
def second(number: int) -> None:
    protocol.mark_begin(number)
    time.sleep(1)
    protocol.mark_end(number)
