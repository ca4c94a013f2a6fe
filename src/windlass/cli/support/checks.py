"""What `windlass doctor` looks at beside the engine: this program, its app, its jobs and workers.

1. Of the program: versions, the app and its tasks, settings that are not heeded.
2. Of the place: how long an answer takes, where the engine does not measure that itself.
3. Of the jobs: whether there ever was one, workers that live, queues that none of them serves,
   what is paused, what no worker knows, and dead letters.

Counters are read, and at most `LOOKED_AT` jobs: this may be run beside workers.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from windlass.app import Windlass
from windlass.cli.support.fleet import WorkerView, read_fleet
from windlass.cli.support.holds import is_unroutable, why_held
from windlass.cli.support.records import find_all
from windlass.cli.support.wording import NEVER_STORED, count
from windlass.core.distribution import installed_version
from windlass.core.queues.labels import may_take, queue_of
from windlass.core.queues.plans import read_tiers
from windlass.core.states import WAITING, State
from windlass.engine.contract import Engine, Filter, Finding, Grade, JobRecord, Stats
from windlass.settings import find_overruled

#: So many dead letters are worth a look.
MANY_DEAD: Final = 1_000
#: So many ready jobs are looked at for those that no worker knows.
LOOKED_AT: Final = 1_000
#: An answer that takes longer than this, in milliseconds, slows everything down.
SLOW_MS: Final = 50.0
_ROUNDS: Final = 5


def examine_program(app: Windlass, name: str) -> Iterator[Finding]:
    """`name` is that of the app, empty if there is only a url."""
    import platform  # slow to import

    python = f"Python {platform.python_version()}, windlass {installed_version()}"
    yield Finding(Grade.OK, "program", python)
    if not name:
        yield Finding(Grade.OK, "app", "none is named: only the engine is looked at")
    elif app.tasks:
        yield Finding(Grade.OK, "app", f"{name}, {count(len(app.tasks), 'task')}")
    else:
        text = f"{name} knows no task: where it is made, import the modules that declare them"
        yield Finding(Grade.ADVICE, "app", text)
    overruled = find_overruled(app.settings, os.environ) if name else {}
    for setting, variable in overruled.items():
        text = f"{variable} is not heeded: the code of the app says {setting}, which comes first"
        yield Finding(Grade.ADVICE, "settings", f"{text}. Take one of them away")
    if not overruled:
        yield Finding(Grade.OK, "settings", "all are heeded; `windlass config` shows them")


def examine_answers(engine: Engine) -> Finding:
    took_ms = []
    for _ in range(_ROUNDS):
        began_at = time.perf_counter()
        engine.queues()
        took_ms.append((time.perf_counter() - began_at) * 1000)
    usual_ms = sorted(took_ms)[_ROUNDS // 2]
    text = f"{usual_ms:.2f} ms, the median of {_ROUNDS}"
    if usual_ms > SLOW_MS:
        return Finding(Grade.ADVICE, "round trip", f"{text}: look at the disk, or at who is busy")
    return Finding(Grade.OK, "round trip", text)


# -------------------------------------------------------------------------------------------- jobs


def examine_jobs(engine: Engine) -> Iterator[Finding]:
    if not engine.is_used():  # to look further would set it up
        yield Finding(Grade.ADVICE, "jobs", NEVER_STORED)
        return
    stats, fleet = engine.stats(), read_fleet(engine)
    if not stats.totals.get("enqueued"):
        yield Finding(Grade.ADVICE, "jobs", NEVER_STORED)
    yield _workers(fleet, _sum(stats, [State.READY]))
    if fleet:
        yield from _served(stats, fleet)
    yield from _paused(engine, stats)
    yield _unroutable(engine, stats, fleet)
    yield dead_letters(_sum(stats, [State.DEAD]))


def _sum(stats: Stats, states: Sequence[State]) -> int:
    return sum(counts.get(state, 0) for counts in stats.queues.values() for state in states)


def _workers(fleet: Sequence[WorkerView], ready: int) -> Finding:
    if fleet:
        children = sum(len(worker.children) for worker in fleet)
        text = f"{count(len(fleet), 'worker')} with {count(children, 'child', 'children')}"
        return Finding(Grade.OK, "workers", text)
    if ready:
        text = f"there is none, and {count(ready, 'ready job')} will wait until one is started"
        return Finding(Grade.PROBLEM, "workers", f"{text}: windlass worker MODULE:ATTR")
    return Finding(Grade.ADVICE, "workers", "there is none: nothing runs until one is started")


def _served(stats: Stats, fleet: Sequence[WorkerView]) -> Iterator[Finding]:
    """Ready jobs that no worker may take, for want of the queue or of labels."""
    alone = {
        line: number
        for line, counts in sorted(stats.queues.items())
        if (number := counts.get(State.READY, 0))
        and not any(_serves(worker, line) for worker in fleet)
    }
    for line, number in alone.items():
        text = f"{line} has {count(number, 'ready job')}, and no worker serves it"
        yield Finding(Grade.PROBLEM, "queues", f"{text}: start one with -q {queue_of(line)}")
    if not alone:
        yield Finding(Grade.OK, "queues", "each one with ready jobs is served")


def _serves(worker: WorkerView, line: str) -> bool:
    names = {queue for tier in read_tiers(worker.queues) for queue in tier.queues}
    return (not names or queue_of(line) in names) and may_take(line, worker.labels)


def _paused(engine: Engine, stats: Stats) -> Iterator[Finding]:
    waiting: Mapping[str, int] = _waiting(stats)
    for record in engine.queues():
        if record.paused and waiting.get(record.queue, 0):
            jobs_wait = count(waiting[record.queue], "job waits", "jobs wait")
            text = f"{record.queue} is paused, and {jobs_wait} there"
            yield Finding(
                Grade.ADVICE, "queues", f"{text}: windlass queue resume {record.queue} opens it"
            )


def _waiting(stats: Stats) -> Counter[str]:
    waiting: Counter[str] = Counter()
    for line, counts in stats.queues.items():
        waiting[queue_of(line)] += sum(counts.get(state, 0) for state in WAITING)
    return waiting


def _unroutable(engine: Engine, stats: Stats, fleet: Sequence[WorkerView]) -> Finding:
    if stats.totals.get("unroutable", 0):
        newest = islice(find_all(engine, Filter(state=State.READY)), LOOKED_AT)
        held = [job for job in newest if is_unroutable(job)]
        if held:
            text = f"{count(len(held), 'job')} of {_names_of(held)}"
            advice = (
                "start a worker whose app declares them, in the version and with the secret that "
                "they were made with. Jobs of a task that no worker knows are kept until then; a "
                "call that does not fit its function, or that none can read, is dead after a day"
            )
            example = f"{held[0].id}: {_why_held(engine, held[0], fleet)}"
            text = f"no worker can run {text}: {advice}. The newest is {example}"
            return Finding(Grade.ADVICE, "unknown tasks", text)
    return Finding(Grade.OK, "unknown tasks", "no job waits for a worker that knows its task")


def _names_of(held: Sequence[JobRecord]) -> str:
    return ", ".join(sorted({job.task for job in held})[:10])


def _why_held(engine: Engine, job: JobRecord, fleet: Sequence[WorkerView]) -> str:
    """Of one: what they are sealed with stands in their calls, which are not read for a list."""
    record = engine.get([job.id])[0]
    why = None if record is None else why_held(record, fleet)
    return why or "it was taken meanwhile"


def dead_letters(number: int) -> Finding:
    text = count(number, "dead letter")
    if number > MANY_DEAD:
        text = f"{text}: look with windlass dead list, then retry or discard them"
        return Finding(Grade.ADVICE, "dead letters", text)
    return Finding(Grade.OK, "dead letters", text)
