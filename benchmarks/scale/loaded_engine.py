"""One engine under load: fill its backlog, and take times.

1. `fill` puts ready, scheduled or finished jobs, in batches of 500, as producers and workers do.
2. `measure` puts, drains and claims on two engines in turns: a small one and a large one. Medians
   of several rounds are compared, so that a busy minute of the machine meets both.

Claims run in this process, without a worker: the times are those of the engine.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from benchmarks.scale.results import Effort, EngineTimes
from benchmarks.stage import SETTINGS, Stage
from windlass.core.ids import new_nonce, new_session
from windlass.engine.contract import BATCH, Engine, EngineOptions, NewJob, Outcome, Plan, Succeeded
from windlass.engine.url import open_engine

#: A month: scheduled jobs do not fall due while they are measured.
_LATER_MS: Final = 30 * 24 * 60 * 60 * 1000
_CALL: Final = b'{"version":1,"task":"benchmarks.tasks.nothing","call":{"args":[100]}}'
_TURN: Final = 50


class LoadedEngine:
    """An engine on its own stage."""

    def __init__(self, engine: Engine, stage: Stage, queues: int = 1) -> None:
        self.engine = engine
        self._stage = stage
        self._queues = queues
        self._stored = 0
        self._session = new_session("scale", 1)
        self._turns = 0

    def cpu_s(self) -> float:
        """CPU time of this process, and of the server if there is one."""
        return time.process_time() + self._stage.server_cpu_s()

    def put(self, number: int, *, run_in_ms: int = 0) -> float:
        """Store jobs, and return how long the puts took."""
        elapsed = 0.0
        while number > 0:
            jobs = [self._new_job(run_in_ms) for _ in range(min(number, BATCH))]
            started = time.perf_counter()
            self.engine.put(jobs)
            elapsed += time.perf_counter() - started
            number -= len(jobs)
        return elapsed

    def _new_job(self, run_in_ms: int) -> NewJob:
        self._stored += 1
        queue = f"queue-{self._stored % self._queues}"
        return NewJob(
            id=self.engine.new_id("benchmarks.tasks.nothing", queue, None),
            task="benchmarks.tasks.nothing",
            queue=queue,
            payload=_CALL,
            run_in_ms=run_in_ms,
        )

    def drain(self, number: int, turn: int = _TURN) -> list[float]:
        """Claim and end jobs; return how long each turn took."""
        ends: list[Outcome] = []
        times: list[float] = []
        while number > 0 or ends:
            self._turns += 1
            started = time.perf_counter()
            reply = self.engine.turn(
                self._session, ends, new_nonce(self._turns), Plan(), min(turn, max(number, 1))
            )
            times.append(time.perf_counter() - started)
            claims = reply.batch.claims
            ends = [
                Succeeded(id=claim.id, token=claim.token, result=b"null", result_ttl_ms=3_600_000)
                for claim in claims
            ]
            number -= len(claims)
            if number <= 0:
                self.engine.finish(ends)
                ends = []
        return times

    def fill(self, case: str, number: int, label: str) -> None:
        """Add to the backlog, and show the progress."""
        done, started = 0, time.monotonic()
        while done < number:
            chunk = min(number - done, 50_000)
            self.put(chunk, run_in_ms=_LATER_MS if case == "scheduled" else 0)
            if case == "finished":
                self.drain(chunk, turn=BATCH)
            done += chunk
            left_s = (time.monotonic() - started) / done * (number - done)
            show(f"{label}: {done:,} of {number:,} {case} jobs, {left_s:.0f} s left")


def show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def open_loaded_engine(setting: str, queues: int = 1) -> Iterator[LoadedEngine]:
    stage: Stage = SETTINGS[setting]()
    try:
        engine = open_engine(stage.url, EngineOptions())
        engine.migrate()
        yield LoadedEngine(engine, stage, queues)
        engine.shutdown()
    finally:
        stage.close()


def measure(engines: Sequence[LoadedEngine], effort: Effort) -> list[EngineTimes]:
    """Measure engines in turns; for each, the median of its rounds."""
    jobs, claims = effort.jobs, effort.claims
    taken: list[list[EngineTimes]] = [[] for _ in engines]
    for _ in range(effort.rounds):
        for one, own in zip(engines, taken, strict=True):
            put_s = one.put(jobs)
            cpu_before = one.cpu_s()
            drain_s = sum(one.drain(jobs))
            cpu_s = one.cpu_s() - cpu_before
            one.put(claims)
            times = one.drain(claims, turn=1)
            cuts = statistics.quantiles(times, n=100)
            own.append(
                EngineTimes(
                    put_rate=jobs / put_s,
                    drain_rate=jobs / drain_s,
                    drain_cpu_us=cpu_s / jobs * 1e6,
                    claim_p50_ms=statistics.median(times) * 1000,
                    claim_p99_ms=cuts[98] * 1000,
                )
            )
    return [_median(own) for own in taken]


def _median(taken: Sequence[EngineTimes]) -> EngineTimes:
    names = EngineTimes.__struct_fields__
    return EngineTimes(*(statistics.median(getattr(one, name) for one in taken) for name in names))
