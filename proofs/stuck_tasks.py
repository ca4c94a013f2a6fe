"""Heartbeats do not depend on user code: tasks that starve their process do not run twice.

A task spins in Python, holds the interpreter lock in a C call, blocks the event loop, or sleeps in
a thread, each for three leases, while another worker is idle: one start each. Then the proof stops
and kills the processes of a worker one by one: their jobs are taken over within a lease and 2 s,
and no process is left behind.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from proofs.everywhere import on_every_engine
from tests.worker.yard import Worker, Yard, until
from windlass import State

LEASE_S: Final = 2
STUCK_S: Final = 3 * LEASE_S
TAKE_OVER_S: Final = LEASE_S + 2.0


@on_every_engine
def prove(folder: Path, url: str) -> Iterator[str]:
    with closing(Yard(folder, f"{LEASE_S}s", "5s", 3, url)) as yard:
        yield from _prove_one_start_each(yard)
        yield from _prove_taken_over(yard)


def _prove_one_start_each(yard: Yard) -> Iterator[str]:
    worker = yard.start(processes=4, slots=1)
    until(lambda: len(worker.children()) == 4, "four children")
    jobs = [
        yard.plain("spin", f"spin:{STUCK_S}"),
        yard.plain("hold_gil", f"hold_gil:{STUCK_S}"),
        yard.coroutine("block", f"block:{STUCK_S}"),
        yard.plain("sleep", f"sleep:{STUCK_S}"),
    ]
    for label in ("spin", "hold_gil", "block", "sleep"):
        yard.await_start(label)
    standing_by = yard.start(slots=4)
    for job in jobs:
        job.result(timeout=STUCK_S + 20)
    starts = {line.label: line.attempt for line in yard.events("start")}
    assert len(yard.events("start")) == len(jobs), yard.events("start")
    yield f"{', '.join(starts)} for {STUCK_S} s with a lease of {LEASE_S} s: one start each"
    for ended in (worker, standing_by):
        assert ended.stop() == 0


def _prove_taken_over(yard: Yard) -> Iterator[str]:
    for what, hit in HITS.items():
        victim = yard.start(slots=1)
        job = yard.plain(what, f"sleep:{STUCK_S}")
        yard.await_start(what)
        other = yard.start(slots=1)
        other.await_log("ready: ")
        processes = [victim.pid, *victim.children()]
        hit(victim)
        hit_at = time.monotonic()
        yard.await_start(what, 2)
        took_s = time.monotonic() - hit_at
        yield f"{what}: taken over after {took_s:.1f} s, with a lease of {LEASE_S} s"
        assert took_s < TAKE_OVER_S
        yard.await_state(job, State.SUCCEEDED)
        if hit is _kill_supervisor:
            victim.wait()
            _await_deaths(processes)
        victim.destroy()
        assert other.stop() == 0


def _stop_child(worker: Worker) -> None:
    os.kill(worker.children()[0], signal.SIGSTOP)


def _stop_worker(worker: Worker) -> None:
    os.killpg(worker.pid, signal.SIGSTOP)


def _kill_supervisor(worker: Worker) -> None:
    os.kill(worker.pid, signal.SIGKILL)


HITS: Final = {
    "child-stopped": _stop_child,
    "worker-stopped": _stop_worker,
    "supervisor-killed": _kill_supervisor,
}


def _await_deaths(processes: list[int]) -> None:
    until(lambda: not any(map(_is_alive, processes)), "no process is left behind")


def _is_alive(pid: int) -> bool:
    try:
        return b" Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
