"""The app and its tasks. Where the jobs are is said by WINDLASS_URL, and by nothing in the code."""

from __future__ import annotations

import asyncio
import time

from windlass import Retry, Windlass

app = Windlass()


@app.task(retry=Retry(max_attempts=5, base="10s"), timeout="1m")
def charge(order: str, cents: int) -> str:
    time.sleep(0.1)  # as long as the bank takes to answer
    send_receipt.using(idempotency_key=order).enqueue(order, cents)
    return f"{cents} cents for {order}"


@app.task(queue="mail")
async def send_receipt(order: str, cents: int) -> None:
    await asyncio.sleep(0.05)  # as long as the mail server takes
