"""The tasks of Celery, without a result backend."""

from __future__ import annotations

import time

from celery import Celery

from benchmarks.peers.adapters import protocol

app = Celery("peers", broker=protocol.URL)
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)


@app.task(name="noop")
def noop(number: int) -> None:
    protocol.mark()


@app.task(name="three")
def three(number: int, address: str, amount: float) -> None:
    protocol.mark()


@app.task(name="three_long")
def three_long(number: int, text: str, amount: float) -> None:
    protocol.mark()


@app.task(name="io")
def io(number: int) -> None:
    time.sleep(0.001)
    protocol.mark()


@app.task(name="start_time")
def start_time() -> None:
    protocol.mark_start_time()


@app.task(name="second")
def second(number: int) -> None:
    protocol.mark_begin(number)
    time.sleep(1)
    protocol.mark_end(number)
