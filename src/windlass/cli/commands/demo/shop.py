"""The tasks of the demo: an imaginary shop.

Every run of a task writes one line to a ledger, a plain file outside the engine, so that the demo
can prove at its end which jobs ran, and how often.
"""

from __future__ import annotations

import asyncio
import os
import random
import time

from windlass import Context, Reject, Retry, Windlass, current_context

app = Windlass(retry=Retry(max_attempts=4, base="400ms", cap="2s"), lease="5s")


def _note(word: str) -> None:
    """Append a line to the ledger by a single write, so that it survives a kill, and lines never
    mix. After the demo the tasks still run, without a ledger."""
    path = os.environ.get("DEMO_LEDGER")
    if path is None:
        return
    line = f"{current_context().job_id} {word} {os.getpid()}\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


@app.task(queue="images")
def resize(photo: str, width: int) -> str:
    """Work for 50 ms in a thread."""
    _note("start")
    time.sleep(random.uniform(0.05, 0.25))
    _note("end")
    return f"{photo}@{width}"


@app.task(queue="mail")
async def welcome(customer: int) -> str:
    """Wait for a mail server, on the event loop."""
    _note("start")
    await asyncio.sleep(random.uniform(0.02, 0.2))
    _note("end")
    return f"Welcome, customer {customer}!"


@app.task(queue="payments", takes_context=True)
def charge(ctx: Context, order: int) -> str:
    """Call a payment service with outages: the first tries fail."""
    _note("start")
    time.sleep(0.05)
    if ctx.attempt <= order % 3:
        raise ConnectionError("the payment service answered 503")
    _note("end")
    return f"receipt-{order}"


@app.task(queue="reports", takes_context=True)
async def report(ctx: Context, month: int) -> int:
    """Run slowly, and report progress."""
    _note("start")
    for step in range(20):
        await asyncio.sleep(0.15)
        ctx.progress((step + 1) / 20, f"day {step + 1}")
    _note("end")
    return month


@app.task(queue="mail")
async def remind(customer: int) -> str:
    """Run later: enqueued with a delay."""
    _note("start")
    _note("end")
    return f"Customer {customer}, your basket is waiting."


@app.task(queue="payments", retry=Retry(max_attempts=2, base="300ms"))
def refund(order: int) -> None:
    """Fail in every attempt because of a bug: the job ends as a dead letter."""
    _note("start")
    raise ZeroDivisionError(f"order {order} has no items")


@app.task(queue="mail")
def newsletter(customer: int) -> None:
    """Reject at once: a dead letter without retries."""
    _note("start")
    raise Reject(f"customer {customer} has unsubscribed")


@app.task(queue="payments")
def urgent(order: int) -> str:
    """Overtake the waiting jobs of the queue: enqueued last with a high priority."""
    _note("start")
    time.sleep(0.02)
    _note("end")
    return f"order {order} is on its way"
