"""Why a ready job is held.

A sealed call names its key in plain text, and a worker reports the names of its keys. Any other
reason is stored with the job by the worker that claimed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from windlass.cli.support.records import find_all
from windlass.cli.support.wording import program
from windlass.core.serialization.envelope import unpack
from windlass.core.serialization.frame import describe_sealed
from windlass.core.states import Hold, State
from windlass.engine.contract import Engine, Filter, JobRecord, Stats
from windlass.errors import DecodeError
from windlass.fleet import WorkerInfo
from windlass.job import held_because

#: At most this many ready jobs are searched for held ones.
LOOKED_AT: Final = 1000
_NOT_UNDERSTOOD: Final = (  # of a worker that stored no reason
    "no worker that claimed it has its task, accepts its arguments and reads its codec"
)


def find_held(engine: Engine, stats: Stats) -> list[JobRecord]:
    """The held jobs among the newest ready ones."""
    if not stats.totals.get("unroutable", 0):
        return []
    newest = islice(find_all(engine, Filter(state=State.READY)), LOOKED_AT)
    return [job for job in newest if is_unroutable(job)]


def what_was_searched(stats: Stats) -> str:
    """Which jobs `find_held` reads, if there are more than it reads; else nothing."""
    ready = sum(counts.get(State.READY, 0) for counts in stats.queues.values())
    is_cut = ready > LOOKED_AT and stats.totals.get("unroutable", 0)
    return f"among the newest {LOOKED_AT:,} of {ready:,} ready jobs" if is_cut else ""


def is_unroutable(record: JobRecord) -> bool:
    return record.hold is Hold.UNROUTABLE


def why_held(record: JobRecord, fleet: Sequence[WorkerInfo]) -> str | None:
    """The reason as the end of a sentence. The record must have its stored payload."""
    if record.hold is Hold.PAUSED:
        return why_paused(record.task)
    if not is_unroutable(record):
        return None
    return _why_sealed(record.payload, fleet) or held_because(record) or _NOT_UNDERSTOOD


def why_paused(task: str) -> str:
    return f"the task is paused, and `{program()} task resume {task}` resumes it"


def _why_sealed(payload: bytes, fleet: Iterable[WorkerInfo]) -> str:
    try:
        envelope = unpack(payload)
    except DecodeError:
        return ""
    if not envelope.seal or any(envelope.key in worker.keys for worker in fleet):
        return ""
    sealed = describe_sealed(envelope.seal, envelope.key)
    return f"it is {sealed}, which no worker has: start a worker with that secret"
