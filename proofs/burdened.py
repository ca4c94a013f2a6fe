"""An app whose jobs sometimes fail while their frames, and so the error, hold a megabyte."""

from __future__ import annotations

from typing import Final

from tests.worker.apps.scripted import app
from windlass import Retry, Windlass
from windlass.task import Task

#: Every tenth job fails.
FAILING: Final = 10
BURDEN: Final = 1024 * 1024

Burdened = Task[[int], int]


def declare(app: Windlass) -> tuple[Burdened, Burdened]:
    once = Retry(max_attempts=1)
    return (
        app.task(name="plain_burdened", retry=once)(carry),
        app.task(name="coroutine_burdened", retry=once)(carry_async),
    )


def carry(number: int) -> int:
    if number % FAILING == 0:
        burden = b"x" * BURDEN
        error = ValueError(
            number, len(burden)
        )  # a cycle: the error has this frame, and it the error
        raise error
    return number


async def carry_async(number: int) -> int:
    return carry(number)


declare(app)

__all__ = ["app"]
