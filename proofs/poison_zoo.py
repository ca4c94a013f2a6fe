"""Jobs that harm their process, among a thousand that do not, in each runner and on each engine.

One poison after the other, so that none is hit by the harm that another one does. Each is started
three times at most and is then dead, with its cause named. All others succeed, and are charged
neither an attempt nor a crash. The supervisor is the same process all the time, and ends as it
should.
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

#: So many others come with each poison: 1,000 in all.
GROUP: Final = 126
MOST_STARTS: Final = 3
TIMEOUT: Final = "500ms"
#: What each process of the worker may map, in bytes: enough for everything but the hog.
MEMORY: Final = 2 * 1024**3

#: What must be said of the end of each.
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
    """What would never end by itself has a time-out."""
    never_ends = CAUSES[kind][0] is Reason.TIMED_OUT
    return (poison.using(timeout=TIMEOUT) if never_ends else poison).enqueue(kind)


def start_limited(yard: Yard, ledger: Path) -> Worker:
    """With a limit on memory that its children inherit."""
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
