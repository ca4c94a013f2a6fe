"""Poison jobs that harm their process, among a thousand others, in each runner and on each engine.

The poisons run one at a time, so that none is affected by another. Each starts at most three times
and is then dead, with its cause. All other jobs succeed, and are charged neither an attempt nor a
crash. The supervisor is the same process all the time, and ends cleanly.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from proofs.everywhere import ENGINES
from proofs.poisons import LEDGER, POISONS, RUNNERS, Poison, declare
from tests.contract.variants import fresh_url
from tests.worker.yard import Worker, Yard, until
from windlass import Reason, State
from windlass.core.failures import FailureText
from windlass.engine.contract import JobRecord
from windlass.job import Job

#: The number of other jobs per poison: 1,000 in all.
GROUP: Final = 126
MOST_STARTS: Final = 3
TIMEOUT: Final = "500ms"
#: The memory limit of each process of the worker, in bytes: only the memory hog exceeds it.
MEMORY: Final = 2 * 1024**3

#: The expected reason and cause of each poison.
CAUSES: Final[dict[str, tuple[Reason, str]]] = {
    "kill -9 of itself": (Reason.CRASHED, "SIGKILL"),
    "segmentation fault": (Reason.CRASHED, "SIGSEGV"),
    "_exit": (Reason.CRASHED, "exit code 3"),
    "memory hog": (Reason.EXHAUSTED, "MemoryError"),
    "stack overflow": (Reason.CRASHED, "SIGSEGV"),
    "deadlock": (Reason.TIMED_OUT, "TimedOut"),
    "ignores SIGTERM": (Reason.TIMED_OUT, "TimedOut"),
    "except BaseException": (Reason.TIMED_OUT, "TimedOut"),
}


def prove(folder: Path) -> Iterator[str]:
    assert set(CAUSES) == set(POISONS)
    for engine in ENGINES:
        for runner in RUNNERS:
            own = folder / f"{engine}-{runner}"
            own.mkdir()
            for line in prove_runner(own, fresh_url(engine, own), runner):
                yield f"{engine}, {runner}: {line}"


def prove_runner(folder: Path, url: str, runner: str) -> Iterator[str]:
    yard = Yard(folder, "5s", "5s", 3, url, kill_after="500ms")
    ledger = folder / "starts"
    ledger.touch()
    try:
        poison, innocent = declare(yard.app)[runner]
        worker = start_limited(yard, ledger)
        others: list[Job[int]] = []
        began_at = time.monotonic()
        for kind in POISONS:
            others += innocent.enqueue_many(innocent.bind(n) for n in range(GROUP // 2))
            job = enqueue(poison, kind)
            others += innocent.enqueue_many(innocent.bind(n) for n in range(GROUP // 2))
            await_ends(yard, [job])
            record = yard.record(job.id)
            starts = ledger.read_text().splitlines().count(f"{runner}:{kind}")
            yield f"{kind}: {starts} starts, {describe(record)}"
            check_poison(kind, record, starts)
        await_ends(yard, others)
        took_s = time.monotonic() - began_at
        check_innocents(yard, others)
        assert worker.process.poll() is None, "the supervisor has ended"
        yield f"{len(others)} others succeeded uncharged ({took_s:.1f} s)"
        assert worker.stop() == 0
    finally:
        yard.close()


def enqueue(poison: Poison, kind: str) -> Job[None]:
    """Enqueue a poison with a time-out if it never ends by itself."""
    never_ends = CAUSES[kind][0] is Reason.TIMED_OUT
    return (poison.using(timeout=TIMEOUT) if never_ends else poison).enqueue(kind)


def start_limited(yard: Yard, ledger: Path) -> Worker:
    """Start a worker with a memory limit that its children inherit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, hard))
    try:
        environment = {LEDGER: str(ledger)}
        return yard.start(app="proofs.poisons:app", slots=10, environment=environment)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def await_ends(yard: Yard, jobs: Sequence[Job[None] | Job[int]]) -> None:
    ids = [job.id for job in jobs]

    def have_ended() -> bool:
        records = yard.app.engine.get(ids)
        return all(record is not None and record.state.is_final for record in records)

    until(have_ended, "the end of all jobs", seconds=180)


def check_poison(kind: str, record: JobRecord, starts: int) -> None:
    reason, cause = CAUSES[kind]
    assert 1 <= starts <= MOST_STARTS
    assert (record.state, record.reason) == (State.DEAD, reason)
    assert any(cause.encode() in failure.error for failure in record.failures), record.failures
    if cause.startswith("SIG"):
        assert any(b"of memory" in failure.error for failure in record.failures)


def check_innocents(yard: Yard, jobs: list[Job[int]]) -> None:
    for record in yard.app.engine.get([job.id for job in jobs]):
        assert record is not None
        assert record.state is State.SUCCEEDED, record
        assert (record.counters.attempt, record.counters.crashes) == (1, 0), record


def describe(record: JobRecord) -> str:
    texts = [FailureText.unpack(failure.error) for failure in record.failures]
    causes = Counter(text.type or text.message for text in texts)
    named = ", ".join(f"{number} x {cause}" for cause, number in causes.items())
    return f"{record.state} as {record.reason}: {named}"
