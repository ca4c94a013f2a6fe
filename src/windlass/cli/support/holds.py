"""Jobs that are held, for lists: find them, and say why in a few words. `windlass.explanation` says
more about one job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from windlass.cli.support.wording import program
from windlass.core.states import Hold
from windlass.engine.contract import Engine, Filter, JobRecord, Stats
from windlass.explanation import why_unroutable
from windlass.fleet import WorkerInfo

#: At most this many held jobs are read.
LOOKED_AT: Final = 1000


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
    return why_unroutable(record, {key for worker in fleet for key in worker.keys})


def why_paused(task: str) -> str:
    return f"the task is paused, and `{program()} task resume {task}` resumes it"
