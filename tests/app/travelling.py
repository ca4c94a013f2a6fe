"""A program with the features that work on every system: `produce` enqueues, `work` runs jobs with
an embedded worker. WINDLASS_URL is the engine."""

from __future__ import annotations

import asyncio
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from windlass import JobFailed, Retry, State, Windlass

app = Windlass()


@app.task
def double(number: int) -> int:
    return 2 * number


@app.task
async def triple(number: int) -> int:
    await asyncio.sleep(0)
    return 3 * number


@app.task(timeout="200ms", retry=Retry(max_attempts=1))
async def linger() -> None:
    await asyncio.sleep(60)


@app.task(timeout="200ms", retry=Retry(max_attempts=1))
def spin() -> None:
    while True:
        time.sleep(0.001)


async def produce_many() -> None:
    await asyncio.gather(*(triple.aenqueue(number) for number in range(50)))


def produce() -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(double.enqueue, range(50)))
    asyncio.run(produce_many())
    double.using(run_after="1h").enqueue(1)
    job = double.enqueue(21)
    assert job.info().state is State.READY
    assert job.cancel()


def work() -> None:
    waiting = double.enqueue(21)
    with app.worker(slots=4):
        assert waiting.result(timeout=30) == 42
        assert triple.enqueue(14).result(timeout=30) == 42, "it is woken, too"
        for stuck in (linger.enqueue(), spin.enqueue()):
            with suppress(JobFailed):
                stuck.result(timeout=30)
            assert stuck.info().reason == "timed_out"


if __name__ == "__main__":
    {"produce": produce, "work": work}[sys.argv[1]]()
    app.close()
