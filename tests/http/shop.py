"""The tasks of the app in the tests of the HTTP API."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from windlass import Retry, Unique, Windlass


@dataclass
class Order:
    number: int
    card_number: str = ""
    placed_at: datetime | None = None


def add_tasks(app: Windlass) -> None:
    @app.task(name="shop.mail.send", queue="mail")
    def send(to: str, body: str = "", *, password: str = "") -> str:
        return f"{to}: {len(body)}"

    @app.task(name="shop.charge", queue="payments", retry=Retry(max_attempts=1))
    def charge(order: Order, amount: int = 0) -> int:
        return amount

    @app.task(name="shop.report")
    def report(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"args": len(args), "kwargs": sorted(kwargs)}

    @app.task(name="shop.sync", unique=Unique())
    def sync(shop: int) -> None: ...
