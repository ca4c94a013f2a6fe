"""The app of the proof of the history: jobs that succeed, fail, die and snooze, by their number."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

from windlass import Context, Reject, Retry, Snooze, Windlass
from windlass.task import Task

QUICK: Final = Retry(3, base=0.05, cap=0.05, jitter=0)

Mixed = Task[[int, float], int]


def declare(app: Windlass) -> tuple[Mixed, Mixed]:
    return (
        app.task(name="mixed", takes_context=True, retry=QUICK)(plain),
        app.task(name="mixed_coroutine", takes_context=True, retry=QUICK)(coroutine),
    )


def plain(ctx: Context, number: int, seconds: float) -> int:
    time.sleep(seconds)
    return end(ctx, number)


async def coroutine(ctx: Context, number: int, seconds: float) -> int:
    await asyncio.sleep(seconds)
    return end(ctx, number)


def end(ctx: Context, number: int) -> int:
    """Return, or raise what this number stands for."""
    if number % 10 == 1 and ctx.attempt == 1:
        raise ValueError("fails once")
    if number % 50 == 2:
        raise ValueError("fails always")
    if number % 50 == 3:
        raise Reject("is rejected")
    if number % 50 == 4 and random.random() < 0.5:
        raise Snooze(0.05)
    return number


app = Windlass()
declare(app)
