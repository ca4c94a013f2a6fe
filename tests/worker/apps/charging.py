"""Tasks whose process is killed right after they have charged a card."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.worker.apps.scripted import LEDGER, note
from windlass.app import Windlass
from windlass.context import Context, current_context
from windlass.task import Task

#: The number of starts of each job that end by a signal.
KILLED_STARTS = 2


class Charging:
    """The tasks of one app, under fixed names."""

    def __init__(self, app: Windlass) -> None:
        self.plain: Task[[int], str] = app.task(name="charging.plain", takes_context=True)(plain)
        self.coroutine: Task[[int], str] = app.task(name="charging.coroutine", takes_context=True)(
            coroutine
        )
        self.process: Task[[int], str] = app.task(
            name="charging.process", takes_context=True, run_in="process"
        )(plain)
        self.below: Task[[int], str] = app.task(name="charging.below")(below)


def plain(ctx: Context, cents: int) -> str:
    begin(ctx)
    receipt = ctx.once("charge", charge, ctx, cents)
    die_at_first(ctx)
    ctx.once("mail", note, f"mail {ctx.job_id} {receipt}")
    return receipt


async def coroutine(ctx: Context, cents: int) -> str:
    begin(ctx)
    receipt = await ctx.aonce("charge", charge_async, ctx, cents)
    die_at_first(ctx)
    return receipt


def below(cents: int) -> str:
    return plain(current_context(), cents)


def begin(ctx: Context) -> None:
    note(f"begin {ctx.job_id}")


def starts(ctx: Context) -> int:
    return Path(os.environ[LEDGER]).read_text().splitlines().count(f"begin {ctx.job_id}")


def charge(ctx: Context, cents: int) -> str:
    """The receipt tells which start has charged the card."""
    note(f"charge {ctx.job_id} {cents} {ctx.idempotency_key}")
    return f"receipt-{starts(ctx)}"


async def charge_async(ctx: Context, cents: int) -> str:
    return charge(ctx, cents)


def die_at_first(ctx: Context) -> None:
    note(f"key {ctx.job_id} {ctx.idempotency_key}")
    if starts(ctx) <= KILLED_STARTS:
        os.kill(os.getpid(), signal.SIGKILL)


app = Windlass(os.environ.get("WINDLASS_URL", "sqlite:///:memory:"))
charging = Charging(app)
