"""The scripted tasks with hooks, which write into the ledger."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.worker.apps.scripted import Script, note
from windlass import JobEvent, Windlass

#: How long a hook takes, in seconds.
HOOK_S = "HOOKED_S"
#: How long the exit of the lifespan takes, in seconds.
EXIT_S = "LIFESPAN_EXIT_S"


@asynccontextmanager
async def live() -> AsyncIterator[None]:
    yield
    await asyncio.sleep(float(os.environ.get(EXIT_S, "0")))
    note(f"left lifespan 0 {os.getpid()}")


app = Windlass(lifespan=live)
script = Script(app)


@app.on_success
def write_success(event: JobEvent) -> None:
    time.sleep(float(os.environ.get(HOOK_S, "0")))
    note(f"success {event.args[0]} {event.attempt} {os.getpid()}")


@app.on_retry
def write_retry(event: JobEvent) -> None:
    note(f"retry {event.args[0]} {event.attempt} {os.getpid()}")


@app.on_dead
async def write_death(event: JobEvent) -> None:
    label = f"{event.args[0]}-{event.reason}-{event.failure and event.failure.name}"
    note(f"dead {label} {event.attempt} {os.getpid()}")
