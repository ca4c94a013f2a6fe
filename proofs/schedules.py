"""50 schedules of one second on 5 workers, with a random worker killed every 3 s: every
occurrence is enqueued once, and 99 % within a second of their time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

from proofs.everywhere import on_every_engine
from tests.worker.apps.ticking import await_all, kill_until, next_second, save, share, take_account
from tests.worker.yard import Yard
from windlass import State

SCHEDULES: Final = 50
SECONDS: Final = 180
WORKERS: Final = 5
KILL_EVERY_S: Final = 3.0
LATE_MS: Final = 1_000


@on_every_engine
def prove(folder: Path, url: str) -> Iterator[str]:
    yard = Yard(folder, lease="5s", grace="5s", max_crashes=3, url=url)
    number = SCHEDULES * SECONDS
    try:
        workers = [yard.start() for _ in range(WORKERS)]
        for worker in workers:
            worker.await_log("ready: ")
        begin = next_second(2)
        expected = save(yard, SCHEDULES, SECONDS, begin)
        killed = kill_until(yard, workers, begin + timedelta(seconds=SECONDS), KILL_EVERY_S)
        await_all(yard, number, seconds=30)
        yard.await_count(State.SUCCEEDED, number, seconds=60)
        account = take_account(yard, expected)
        total = yard.app.engine.stats().totals["enqueued"]
        skipped = sum(info.skipped for info in yard.app.schedules.list())
        yield (
            f"{SCHEDULES} schedules of 1 s for {SECONDS} s, {killed} of {WORKERS} workers killed: "
            f"{total:,} jobs enqueued, {account.expected:,} expected, {account.missing} missing, "
            f"{account.invented} others, {skipped} left out"
        )
        late, started = account.enqueued_late_ms, account.started_late_ms
        yield (
            f"enqueued after p50 {share(late, 50)} ms, p99 {share(late, 99)} ms, at most "
            f"{late[-1]} ms; started for the last time after p50 {share(started, 50)} ms, p99 "
            f"{share(started, 99)} ms, at most {started[-1]} ms"
        )
        assert (total, account.missing, account.invented, skipped) == (number, 0, 0, 0)
        assert late[0] >= 0
        assert share(late, 99) < LATE_MS
    finally:
        yard.close()
