"""The tasks of the app behind the dashboard in the browser tests: a shop with failures of its own.

`app` is for a server and a worker in processes of their own; their url comes from the command.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from windlass import Context, Cron, Every, Retry, Task, Windlass

RELEASE: Final = "2026.11.3"
#: The queues that the worker serves. Jobs of the queue "letters" wait.
SERVED: Final = ("mail", "payments", "exports", "reports")


@dataclass(frozen=True)
class Shop:
    """The tasks of one app."""

    welcome: Task[[str], str]
    charge: Task[..., int]
    ship: Task[[int], None]
    export: Task[[int], int]
    total: Task[..., int]
    letter: Task[[str], None]


def add_tasks(app: Windlass) -> Shop:
    @app.task(name="shop.welcome", queue="mail")
    def welcome(name: str) -> str:
        return f"Welcome, {name}!"

    @app.task(name="shop.charge", queue="payments", retry=Retry(max_attempts=1))
    def charge(order: int, amount: int, *, card_number: str = "") -> int:
        if amount < 0:
            raise ValueError(f"order {order}: the amount {amount} is negative")
        return amount

    @app.task(
        name="shop.ship",
        queue="payments",
        retry=Retry(max_attempts=2, base="50ms", cap="50ms", jitter=0),
    )
    def ship(order: int) -> None:
        raise ConnectionError(f"the carrier refused order {order}: 503 Service Unavailable")

    @app.task(name="shop.export", queue="exports", takes_context=True)
    async def export(ctx: Context, rows: int) -> int:
        """Run until it is cancelled."""
        ctx.log("opened the file")
        ctx.progress(0.4, f"{rows} rows")
        await asyncio.Event().wait()
        return rows

    @app.task(name="shop.total", queue="reports", retry=Retry(max_attempts=1))
    def total(*amounts: int, note: str = "", **other: Any) -> int:
        if not note:
            raise LookupError("the report has no note")
        return sum(amounts)

    @app.task(name="shop.letter", queue="letters")
    def letter(to: str) -> None: ...

    @app.task(name="shop.tidy", queue="reports", schedule=Every("1h"))
    def tidy() -> None: ...

    @app.task(name="shop.digest", queue="mail", schedule=Cron("0 7 * * MON-FRI"))
    def digest() -> None: ...

    return Shop(welcome, charge, ship, export, total, letter)


app = Windlass(release=RELEASE)
add_tasks(app)
