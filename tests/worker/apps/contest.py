"""Many callers on one unique key while workers end its jobs, and whether the key was ever shared.

1. `app` is what workers and callers load: its task notes every start and end in a ledger, and now
   and then fails, to be tried again or to die.
2. `call` is what each process of callers does: threads that enqueue as fast as they can, and note
   for each try the instants around it and the answer.
3. `run` lets them loose, and `judge` counts what must not have happened.

Instants of callers and of the engine come from one clock, in whole milliseconds rounded down.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tests.worker.yard import PROJECT, until
from windlass import Context, Retry, Unique, Windlass
from windlass.engine.contract import Engine, JobRecord

LEDGER: Final = "CONTEST_LEDGER"
KEY: Final = "the only one"
SLOTS: Final = 4
_PAGE: Final = 500
_WORKER: Final = (
    *("-m", "windlass", "worker", "tests.worker.apps.contest:app"),
    *("-p", "1", "-c", str(SLOTS)),
)

app = Windlass(os.environ.get("WINDLASS_URL", "sqlite:///:memory:"))


@app.task(
    name="contest.work",
    takes_context=True,
    unique=Unique(by="key"),
    retry=Retry(max_attempts=2, base=0, jitter=0),
)
def work(ctx: Context, key: str, number: int) -> None:
    note("start", ctx.job_id)
    time.sleep(random.random() / 500)
    note("end", ctx.job_id)
    if random.random() < 0.2:
        raise ValueError("as it happens")


def note(event: str, job_id: str) -> None:
    """One line in one write, so that processes do not mix theirs."""
    line = f"{time.monotonic_ns()} {event} {job_id}\n"
    with Path(os.environ[LEDGER]).open("a", encoding="utf-8") as ledger:
        ledger.write(line)


# ------------------------------------------------------------------------------------ the callers


class Try(msgspec.Struct, array_like=True):
    """One call: the instants before and after it, and its answer."""

    before_ms: int
    after_ms: int
    id: str
    created: bool


def call(threads: int, tries: int, output: Path) -> None:
    gate = threading.Barrier(threads)
    made: list[list[Try]] = [[] for _ in range(threads)]

    def enqueue_all(mine: list[Try]) -> None:
        gate.wait()
        for number in range(tries):
            before_ms = time.time_ns() // 1_000_000
            job = work.enqueue(KEY, number)
            mine.append(Try(before_ms, time.time_ns() // 1_000_000, job.id, job.created))

    callers = [threading.Thread(target=enqueue_all, args=(mine,)) for mine in made]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    output.write_bytes(msgspec.json.encode([one for mine in made for one in mine]))


# ---------------------------------------------------------------------------------------- the run


class Verdict(NamedTuple):
    """What was counted; the last four must be 0."""

    tries: int
    jobs: int
    starts: int
    seconds: float
    two_alive: int  # jobs that were stored before the one before them had ended
    two_running: int  # starts between a start and an end of another job
    wrong_answers: int  # calls that were answered with a job which did not live at the time
    disagreements: int  # found by the check


def run(folder: Path, url: str, *, processes: int, threads: int, tries: int) -> Verdict:
    """`tries` of each thread, with two workers."""
    ledger = folder / "ledger"
    ledger.touch()
    environment = {**os.environ, "WINDLASS_URL": url, LEDGER: str(ledger)}
    outputs = [folder / f"callers-{number}" for number in range(processes)]
    workers = [_start(environment, *_WORKER) for _ in range(2)]
    try:
        with Windlass(url) as place:
            until(lambda: len(place.engine.sessions()) >= len(workers), "the workers are there")
            seconds = _let_call(environment, threads, tries, outputs)
            until(lambda: not _live(place.engine), "the last job has ended")
            for worker in workers:
                worker.send_signal(signal.SIGTERM)
            assert [worker.wait(60) for worker in workers] == [0, 0]
            made = [one for output in outputs for one in _read(output)]
            return judge(place.engine, made, ledger.read_text().splitlines(), seconds)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _let_call(
    environment: dict[str, str], threads: int, tries: int, outputs: Sequence[Path]
) -> float:
    """How long it took."""
    began = time.monotonic()
    words = ("-m", "tests.worker.apps.contest", str(threads), str(tries))
    callers = [_start(environment, *words, str(output)) for output in outputs]
    try:
        assert [caller.wait(600) for caller in callers] == [0] * len(callers)
    finally:
        for caller in callers:
            caller.kill()
            caller.wait()
    return time.monotonic() - began


def _start(environment: dict[str, str], *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *words], cwd=PROJECT, env=environment, stderr=subprocess.DEVNULL
    )


def _read(output: Path) -> list[Try]:
    return msgspec.json.decode(output.read_bytes(), type=list[Try])


def _live(engine: Engine) -> int:
    states = [state for counts in engine.stats().queues.values() for state in counts.items()]
    return sum(number for state, number in states if not state.is_final)


# -------------------------------------------------------------------------------------- the verdict


def judge(engine: Engine, made: Sequence[Try], ledger: Sequence[str], seconds: float) -> Verdict:
    records = _records(engine, sorted({one.id for one in made}))
    assert sum(one.created for one in made) == len(records)
    starts, two_running = _count_starts(ledger)
    return Verdict(
        tries=len(made),
        jobs=len(records),
        starts=starts,
        seconds=seconds,
        two_alive=_count_overlaps(list(records.values())),
        two_running=two_running,
        wrong_answers=sum(not _was_alive(records[one.id], one) for one in made),
        disagreements=len(engine.check()),
    )


def _records(engine: Engine, ids: Sequence[str]) -> dict[str, JobRecord]:
    found: dict[str, JobRecord] = {}
    for at in range(0, len(ids), _PAGE):
        for record in engine.get(ids[at : at + _PAGE]):
            assert record is not None
            found[record.id] = record
    return found


def _count_overlaps(records: list[JobRecord]) -> int:
    in_order = sorted(records, key=lambda record: (record.created_ms, _end_ms(record)))
    return sum(other.created_ms < _end_ms(one) for one, other in pairwise(in_order))


def _end_ms(record: JobRecord) -> int:
    assert record.finished_ms is not None, "all have ended"
    return record.finished_ms


def _was_alive(record: JobRecord, one: Try) -> bool:
    """At some instant of the call."""
    return one.before_ms <= _end_ms(record) and record.created_ms <= one.after_ms


def _count_starts(ledger: Sequence[str]) -> tuple[int, int]:
    """How many there were, and how many while another job ran."""
    running: set[str] = set()
    starts = overlaps = 0
    for _, event, job_id in _in_order(ledger):
        if event == "start":
            starts += 1
            overlaps += bool(running)
            running.add(job_id)
        else:
            running.discard(job_id)
    return starts, overlaps


def _in_order(ledger: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    lines = [line.split() for line in ledger]
    yield from sorted((int(at_ns), event, job_id) for at_ns, event, job_id in lines)


if __name__ == "__main__":
    call(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
