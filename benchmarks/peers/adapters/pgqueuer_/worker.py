"""The worker of PgQueuer, started from Python.

`pgqueuer run` of version 1.6.0 fails in its log set-up with current versions of typer.
"""

from __future__ import annotations

import asyncio
import logging

import uvloop

from benchmarks.peers.adapters.pgqueuer_.tasks import main


async def run() -> None:
    queuer = await main()
    await queuer.run(batch_size=100)


if __name__ == "__main__":
    logging.getLogger("pgqueuer").setLevel(logging.WARNING)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(run())
