"""A worker is stopped with SIGSTOP for three leases and continued: its late result is rejected."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from proofs.everywhere import on_every_engine
from tests.worker.yard import Yard, until
from windlass import State

LEASE_S: Final = 2.0


@on_every_engine
def prove(folder: Path, url: str) -> Iterator[str]:
    with closing(Yard(folder, f"{LEASE_S:g}s", "5s", 3, url)) as yard:
        stopped = yard.start(slots=1)
        job = yard.plain("job", f"sleep:{LEASE_S}")
        first = yard.await_start("job")
        time.sleep(0.2)  # well inside the job, and well before the next beat
        os.killpg(stopped.pid, signal.SIGSTOP)
        stopped_at = time.monotonic()
        yard.start(slots=1)
        second = yard.await_start("job", 2)
        taken_over_s = time.monotonic() - stopped_at
        yard.await_state(job, State.SUCCEEDED)
        time.sleep(max(0.0, stopped_at + 3 * LEASE_S - time.monotonic()))
        before = yard.record(job)
        os.killpg(stopped.pid, signal.SIGCONT)
        until(lambda: yard.app.engine.stats().totals.get("stale"), "a stale outcome counted")
        stopped.await_log("rejected 1 stale result")
        after = yard.record(job)
        yield f"taken over {taken_over_s:.1f} s after the stop, with a lease of {LEASE_S:g} s"
        yield f"refused after the continuation: {yard.app.engine.stats().totals['stale']}"
        assert first.pid != second.pid
        assert before == after, "the late finish changed the record"
        assert after.session is not None
        assert f".{second.pid}." in after.session, "the result is not the second worker's"
        yield f"one result stored, by process {second.pid}; the stopped one was {first.pid}"
