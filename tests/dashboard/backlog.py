"""A backlog of any size in an engine, for tests and proofs of what the dashboard costs.

1. `Backlog` says how many jobs of each state there are to be, `fill` makes them.
2. Every job goes through the contract of the engine: put, claim and finish, in batches of 500. The
   calls are those that the app of the tests encodes, with a result or an error that stays stored.
3. The same share of jobs is of each queue and of each task, whatever the size. The jobs of
   `RARE_TASK` are few, and the first that end.
4. `tend_at` does the maintenance of a worker.
5. In a small backlog each batch ends in a millisecond of its own, so that pages of ended jobs end
   with a batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count, cycle, islice
from typing import Final, NamedTuple

from windlass import FailureText, Reason
from windlass.core.history import Tally
from windlass.core.ids import new_nonce, new_session
from windlass.engine.contract import (
    BATCH,
    Buried,
    Claim,
    Engine,
    Measure,
    NewJob,
    Outcome,
    Plan,
    Retried,
    Succeeded,
)

#: The queues, with the tasks of their jobs.
TASKS: Final = {
    "mail": ("shop.mail.send", "shop.mail.digest"),
    "payments": ("shop.charge", "shop.refund"),
    "default": ("shop.report", "shop.export"),
    "media": ("shop.resize", "shop.encode", "shop.thumbnail"),
}
RARE_TASK: Final = "shop.sync"
#: The number of its finished jobs.
RARE: Final = 5
#: The jobs of a batch are of one queue. A small backlog has small batches, so that each state has
#: jobs of each queue.
_SMALL_BATCH: Final = 25
_LARGE: Final = 100_000
#: The number of jobs that run while the requests are counted.
RUNNING: Final = 20
#: A month: no job is due, and no result is removed, while something is measured.
LATER_MS: Final = 30 * 24 * 60 * 60 * 1000
_CALLS: Final = tuple(
    b'{"args":["customer-%d@example.org"],"kwargs":{"body":"%b"}}' % (number, b"x" * 40)
    for number in range(100)
)
_RESULT: Final = b'"sent"'

#: Takes a text, the number of jobs that are made, and that of all.
Show = Callable[[str, int, int], object]


def _hide(_text: str, _made: int, _total: int) -> None:
    """Show nothing."""


class Backlog(NamedTuple):
    """The number of jobs by state."""

    succeeded: int
    ready: int
    dead: int
    scheduled: int
    retrying: int
    cancelled: int

    @classmethod
    def of(cls, finished: int, ready: int) -> Backlog:
        """The usual shares: of 1,000 finished jobs, 10 are dead and 10 cancelled."""
        some = finished // 100
        return cls(finished - 2 * some, ready, some, ready // 10, ready // 100, some)

    @property
    def total(self) -> int:
        return sum(self)

    def minus(self, other: Backlog) -> Backlog:
        return Backlog(*(one - two for one, two in zip(self, other, strict=True)))


def fill_rare(engine: Engine) -> None:
    """Add the finished jobs of the rare task. All other jobs end later."""
    filling = _Filling(engine, _hide, 0)
    filling.end(RARE, _succeed, tasks=(RARE_TASK,))
    filling.close()


def fill(engine: Engine, backlog: Backlog, show: Show = _hide) -> None:
    """Add this many jobs of each state."""
    filling = _Filling(engine, show, backlog.total)
    filling.end(backlog.succeeded, _succeed)
    filling.end(backlog.dead, _bury)
    filling.end(backlog.retrying, _retry)
    filling.cancel(backlog.cancelled)
    filling.put(backlog.scheduled, run_in_ms=LATER_MS)
    filling.put(backlog.ready)
    filling.close()


def start_some(engine: Engine, session: str) -> Sequence[Claim]:
    """Claim the jobs that run while requests are counted."""
    claims = engine.turn(session, (), new_nonce(1), Plan(), RUNNING).batch.claims
    assert len(claims) == RUNNING
    return claims


def record_runs(engine: Engine, runs: int) -> None:
    """Let the history have runs of every task in the current minute, as a worker reports them."""
    tally = Tally()
    tally.add_runs(0, [0.05] * runs, [0.02] * runs)
    counts = tuple(tally.counts)
    pairs = [(queue, task) for queue, tasks in TASKS.items() for task in tasks]
    measures = [Measure(queue=queue, task=task, counts=counts) for queue, task in pairs]
    engine.record(f"backlog.{new_session('reporter', 1)}", 1, measures)


def tend_at(engine: Engine, at_ms: int) -> None:
    """Do all maintenance, as at one instant: each further minute would add to the history."""
    offset_ms = engine.clock_offset_ms
    engine.clock_offset_ms = at_ms - time.time_ns() // 1_000_000
    try:
        while engine.tend().more:
            pass
    finally:
        engine.clock_offset_ms = offset_ms


class _Filling:
    """The jobs that are made by one call of `fill`."""

    def __init__(self, engine: Engine, show: Show, total: int) -> None:
        self._engine = engine
        self._show = show
        self._total = total
        is_large = total >= _LARGE
        self._batch, self._step_ms = (BATCH, 0) if is_large else (_SMALL_BATCH, 1)
        self._made = 0
        self._session = new_session("backlog", 1)
        self._nonces = map(new_nonce, count(1))

    def put(self, number: int, run_in_ms: int = 0) -> None:
        for jobs in self._batches(number, run_in_ms=run_in_ms):
            self._engine.put(jobs)
            self._made_more(len(jobs))

    def end(
        self, number: int, outcome: Callable[[Claim], Outcome], tasks: Sequence[str] = ()
    ) -> None:
        """Put, claim and end jobs. A turn ends those of the turn before."""
        ends: list[Outcome] = []
        for jobs in self._batches(number, tasks=tasks):
            self._engine.put(jobs)
            plan = Plan(queues=(jobs[0].queue,))
            claims = self._turn(ends, plan, len(jobs))
            ends = [outcome(claim) for claim in claims]
            self._made_more(len(ends))
            self._engine.clock_offset_ms += self._step_ms
        self._engine.finish(ends)
        self._engine.clock_offset_ms += self._step_ms

    def cancel(self, number: int) -> None:
        for jobs in self._batches(number):
            self._engine.put(jobs)
            self._engine.cancel([job.id for job in jobs])
            self._made_more(len(jobs))

    def close(self) -> None:
        self._engine.close(self._session, (), next(self._nonces))

    def _turn(self, ends: Sequence[Outcome], plan: Plan, number: int) -> Sequence[Claim]:
        reply = self._engine.turn(self._session, ends, next(self._nonces), plan, number)
        claims = reply.batch.claims
        assert len(claims) == number, f"{len(claims)} claims instead of {number}"
        return claims

    def _batches(
        self, number: int, tasks: Sequence[str] = (), run_in_ms: int = 0
    ) -> Iterator[list[NewJob]]:
        """New jobs, each batch of one queue, by turns."""
        for at, queue in zip(range(0, number, self._batch), cycle(TASKS), strict=False):
            size = min(self._batch, number - at)
            yield self._jobs(queue, tasks or TASKS[queue], size, run_in_ms)

    def _jobs(self, queue: str, tasks: Sequence[str], number: int, run_in_ms: int) -> list[NewJob]:
        ids = self._engine.new_ids(number, tasks[0], queue)
        parts = zip(ids, cycle(tasks), islice(cycle(_CALLS), number), strict=False)
        return [NewJob(id, task, queue, call, 0, None, run_in_ms) for id, task, call in parts]

    def _made_more(self, number: int) -> None:
        before, self._made = self._made, self._made + number
        step = max(BATCH, self._total // 50)
        if before // step != self._made // step:
            self._show(f"{self._made:,} of {self._total:,} jobs", self._made, self._total)


def _succeed(claim: Claim) -> Outcome:
    return Succeeded(id=claim.id, token=claim.token, result=_RESULT, result_ttl_ms=LATER_MS)


def _failures() -> list[FailureText]:
    """Failures with four fingerprints."""
    kinds = (ValueError("no such customer"), TimeoutError("the bank does not answer"))
    more = (KeyError("address"), ConnectionError("refused"))
    return [FailureText.of(error) for error in (*kinds, *more)]


#: Packed, with their fingerprints.
_FAILURES: Final = cycle([(one.pack(), one.fingerprint) for one in _failures()])


def _bury(claim: Claim) -> Outcome:
    error, fingerprint = next(_FAILURES)
    return Buried(
        id=claim.id,
        token=claim.token,
        reason=Reason.EXHAUSTED,
        error=error,
        fingerprint=fingerprint,
    )


def _retry(claim: Claim) -> Outcome:
    return Retried(id=claim.id, token=claim.token, delay_ms=LATER_MS, error=next(_FAILURES)[0])
