"""An app with a lifespan. The environment selects its kind and its fault."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from tests.worker.apps.scripted import LEDGER, note
from windlass import Context, Windlass
from windlass.worker.child import lifespan

#: The kind of lifespan, and what goes wrong in it.
KIND, TROUBLE = "LIVED_KIND", "LIVED_TROUBLE"

trouble = os.environ.get(TROUBLE, "")
if trouble == "hang":
    lifespan.SLOW_S = 0.2


def enter() -> str:
    note(f"entered {os.getpid()} {threading.current_thread() is threading.main_thread()}")
    if trouble == "enter":
        raise OSError("no database at redis://user:hunter2@host/0")
    if trouble == "hang":
        time.sleep(60)
    if trouble == "one only":
        os.close(os.open(f"{os.environ[LEDGER]}.lock", os.O_CREAT | os.O_EXCL))
    return f"state of {os.getpid()}"


def leave() -> None:
    if trouble == "leave slowly":
        note(f"leaving {os.getpid()}")
        time.sleep(1)
    note(f"left {os.getpid()} {threading.current_thread() is threading.main_thread()}")
    if trouble == "leave":
        raise OSError("cannot close")
    if trouble == "linger":
        time.sleep(60)


def plain() -> Iterator[str]:
    yield enter()
    leave()


async def coroutine() -> AsyncIterator[str]:
    async with asyncio.TaskGroup() as group:
        if trouble == "collapse":
            group.create_task(collapse())
        yield enter()
    await asyncio.sleep(0)
    leave()


async def collapse() -> None:
    await asyncio.sleep(0.3)
    raise OSError("the connection is gone")


KINDS: dict[str, Any] = {
    "plain": plain,
    "coroutine": coroutine,
    "manager": contextmanager(plain),
}

app = Windlass(lifespan=KINDS[os.environ.get(KIND, "plain")])


@app.task(name="tell", takes_context=True)
def tell(ctx: Context) -> str:
    note(f"ran {os.getpid()}")
    return str(ctx.state)


@app.task(name="atell", takes_context=True)
async def atell(ctx: Context) -> str:
    note(f"ran {os.getpid()}")
    return str(ctx.state)
