"""The tasks of the live demo: an imaginary shop with outside services that have troubles.

1. `app` is the app, with its alerts. Its url and its release come from the environment.
2. Each task asks its `TaskPace` for the time that its work takes. A worker gets a pace that waits,
   by the lifespan of the app. `past` gives one that only notes the time.
3. Troubles depend on the arguments: the same call fails in the same way in each run of the demo.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any, Final, Protocol

from windlass import Alert, Context, Cron, Every, Reject, Retry, Windlass

#: The releases of the shop: workers of the first one run until a third of the past hour is left.
OLD_RELEASE: Final = "v41"
NEW_RELEASE: Final = "v42"
#: The number of parts of a monthly report.
REPORT_PARTS: Final = 30


class TaskPace(Protocol):
    """How long the work of tasks takes. `release` is the release of the worker."""

    release: str

    def work(self, least_s: float, most_s: float) -> None:
        """Work in a thread."""

    async def wait(self, least_s: float, most_s: float) -> None:
        """Wait for another service on the event loop."""


class RealPace:
    """The pace of workers."""

    def __init__(self, release: str) -> None:
        self.release = release

    def work(self, least_s: float, most_s: float) -> None:
        time.sleep(random.uniform(least_s, most_s))

    async def wait(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(random.uniform(least_s, most_s))


def lifespan() -> Iterator[TaskPace]:
    yield RealPace(app.settings.release)


app = Windlass(
    lifespan=lifespan,
    retry=Retry(max_attempts=3, base="45s", cap="3m", jitter=0),
    result_ttl="2h",
    shutdown_grace="2s",
    alerts=[
        Alert.no_worker(),
        Alert.failure_rate(0.2),
        Alert.oldest_age("5m"),
        Alert.overdue_schedule("2m"),
    ],
    dead_alert=40,
)


class MailServerError(Exception):
    """The mail server refused a mail."""


class UnknownFormat(ValueError):
    """A file is not an image."""


# -------------------------------------------------------------------------------------------- mail


@app.task(name="mail.welcome", queue="mail", takes_context=True)
async def welcome(ctx: Context, customer: int) -> str:
    await ctx.state.wait(0.05, 0.4)
    return f"Welcome, customer {customer}!"


@app.task(name="mail.receipt", queue="mail", takes_context=True)
async def receipt(ctx: Context, order: int, address: str) -> str:
    await ctx.state.wait(0.1, 0.9)
    if order % 90 == 7:
        raise MailServerError(f"421 smtp-2.example.com cannot deliver to {address!r}")
    if order % 12 == 5 and ctx.attempt == 1:
        raise ConnectionResetError("smtp-1.example.com closed the connection")
    return f"receipt of order {order} is sent to {address}"


@app.task(name="mail.newsletter", queue="mail", takes_context=True)
async def newsletter(ctx: Context, customer: int, issue: str) -> str:
    await ctx.state.wait(0.05, 0.3)
    if customer % 150 == 42:
        raise Reject(f"customer {customer} has unsubscribed")
    return f"{issue} is sent to customer {customer}"


@app.task(name="mail.remind", queue="mail", takes_context=True)
async def remind(ctx: Context, customer: int) -> str:
    """Enqueued with a delay."""
    await ctx.state.wait(0.05, 0.2)
    return f"Customer {customer}, your basket is waiting."


# ---------------------------------------------------------------------------------------- payments


@app.task(name="payments.charge", queue="payments", takes_context=True)
def charge(ctx: Context, order: int, cents: int, currency: str = "EUR") -> str:
    ctx.state.work(0.2, 1.6)
    if order % 75 == 13:
        raise Reject(f"the bank declined {cents} cents for order {order}")
    if order % 8 == 3 and ctx.attempt == 1:
        raise ConnectionError("the payment service answered 503")
    ctx.log(f"charged {cents / 100:.2f} {currency}")
    return f"payment-{order}"


@app.task(
    name="payments.refund",
    queue="payments",
    takes_context=True,
    retry=Retry(max_attempts=2, base="30s", jitter=0),
)
def refund(ctx: Context, order: int, cents: int) -> str:
    """The new release has a bug here."""
    ctx.state.work(0.2, 1.1)
    country: dict[str, Any] = {"name": "NL"}
    if ctx.state.release != NEW_RELEASE or order % 12:
        country["vat_rate"] = 0.21
    return f"refund of {cents} cents, {country['vat_rate']:.0%} of them VAT"


@app.task(
    name="payments.payout", queue="payments", takes_context=True, schedule=Cron("*/15 * * * *")
)
def payout(ctx: Context) -> int:
    ctx.state.work(2, 6)
    return 12


# ----------------------------------------------------------------------------------------- reports


@app.task(name="reports.monthly", queue="reports", takes_context=True)
async def monthly(ctx: Context, month: str) -> str:
    """Run for minutes, and report progress."""
    ctx.log(f"reading the orders of {month}")
    for part in range(REPORT_PARTS):
        await ctx.state.wait(3, 7)
        ctx.progress((part + 1) / REPORT_PARTS, f"{month}, day {part + 1}")
    return f"{month}.pdf"


@app.task(name="reports.export", queue="reports", takes_context=True)
def export(ctx: Context, customer: int) -> str:
    ctx.state.work(1, 9)
    if customer % 20 == 11:
        raise TimeoutError("the warehouse did not answer within 30 s")
    return f"customer-{customer}.csv"


@app.task(name="reports.render", queue="reports", takes_context=True)
def render(ctx: Context, template: str) -> str:
    """Draw a page. A broken template makes the library use all memory, and the system kills the
    process."""
    ctx.state.work(0.5, 2)
    if template.startswith("broken"):
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{template}.pdf"


@app.task(
    name="reports.digest", queue="reports", takes_context=True, schedule=Every("5m", overlap="skip")
)
def digest(ctx: Context) -> str:
    ctx.state.work(1, 4)
    return "digest.html"


# ----------------------------------------------------------------------------------------- default


@app.task(name="search.index", takes_context=True)
async def index(ctx: Context, product: int) -> int:
    await ctx.state.wait(0.02, 0.2)
    return product


@app.task(name="images.resize", takes_context=True)
def resize(ctx: Context, photo: str, widths: list[int]) -> list[str]:
    ctx.state.work(0.1, 0.8)
    if photo.endswith("66.jpg"):
        raise UnknownFormat(f"cannot identify image file {photo!r}")
    return [f"{photo}@{width}" for width in widths]


@app.task(name="shop.cleanup", takes_context=True, schedule=Every("1m"))
def cleanup(ctx: Context) -> int:
    ctx.state.work(0.1, 0.5)
    return 3


@app.task(name="shop.import_prices", queue="imports", takes_context=True)
def import_prices(ctx: Context, supplier: str, page: int) -> str:
    """Its queue is paused: the supplier repairs its file."""
    ctx.state.work(0.5, 2)
    return f"page {page} of {supplier}"
