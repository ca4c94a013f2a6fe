"""Why a ready job is held.

A sealed call names its key in plain text, and a worker reports the names of its keys. Any other
reason is stored with the job by the worker that claimed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from windlass.cli.support.wording import program
from windlass.core.serialization.envelope import unpack
from windlass.core.serialization.frame import describe_sealed
from windlass.core.states import Hold
from windlass.engine.contract import Engine, Filter, JobRecord, Stats
from windlass.errors import DecodeError
from windlass.fleet import WorkerInfo
from windlass.job import held_because

#: At most this many held jobs are read.
LOOKED_AT: Final = 1000
_NOT_UNDERSTOOD: Final = (  # of a worker that stored no reason
    "no worker that claimed it has its task, accepts its arguments and reads its codec"
)


def find_held(engine: Engine, stats: Stats) -> list[JobRecord]:
    """The jobs that are held as unroutable, by task: a bounded number."""
    if not stats.totals.get("unroutable", 0):
        return []
    return list(engine.find(Filter(hold=Hold.UNROUTABLE), limit=LOOKED_AT).records)


def what_was_cut(held: Sequence[JobRecord]) -> str:
    """Which jobs `find_held` has read, if there may be more of them; else nothing."""
    return f"only the first {LOOKED_AT:,} held jobs were read" if len(held) >= LOOKED_AT else ""


def is_unroutable(record: JobRecord) -> bool:
    return record.hold is Hold.UNROUTABLE


def why_held(record: JobRecord, fleet: Sequence[WorkerInfo]) -> str | None:
    """The reason as the end of a sentence. The record must have its stored payload."""
    if record.hold is Hold.PAUSED:
        return why_paused(record.task)
    if not is_unroutable(record):
        return None
    return _why_sealed(record, fleet) or held_because(record) or _NOT_UNDERSTOOD


def why_paused(task: str) -> str:
    return f"the task is paused, and `{program()} task resume {task}` resumes it"


def _why_sealed(record: JobRecord, fleet: Iterable[WorkerInfo]) -> str:
    try:
        envelope = unpack(record.payload, record.task)
    except DecodeError:
        return ""
    if not envelope.seal or any(envelope.key in worker.keys for worker in fleet):
        return ""
    sealed = describe_sealed(envelope.seal, envelope.key)
    return f"it is {sealed}, which no worker has: start a worker with that secret"
