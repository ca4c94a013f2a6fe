"""End a copy that is not complete: remove the copied jobs from the target, and resume the source.

The target comes first. Otherwise the jobs would run on both sides, or run again after a later copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from windlass.engine.contract import Engine
from windlass.engine_copy.copier import CopyStep
from windlass.engine_copy.documents import (
    SOURCE_QUEUES,
    SOURCE_SCHEDULES,
    TARGET_QUEUES,
    Mark,
    Phase,
    StoredState,
    read_names,
    write_mark,
    write_names,
)
from windlass.engine_copy.jobs import PAGE, WALKS
from windlass.engine_copy.pages import read_pages
from windlass.engine_copy.source import all_queues, resume_queues, resume_schedules
from windlass.engine_copy.start import find_unfinished
from windlass.engine_copy.target import watched_jobs


def undo(source: Engine, target: Engine) -> Iterator[CopyStep]:
    """Remove the copied jobs from the target, and resume what the copy has paused. After a kill, a
    repeat does the rest."""
    stored = find_unfinished(source, target)
    if stored.state.phase is Phase.COPYING:
        yield from _remove_copies(source, target, stored)
        queues = all_queues(source)
        resume_queues(target, queues - read_names(source, TARGET_QUEUES))
        if not stored.state.is_late:
            resume_schedules(source, read_names(source, SOURCE_SCHEDULES))
            resume_queues(source, queues - read_names(source, SOURCE_QUEUES))
        stored.save(phase=Phase.NAMING, is_walked=False, walk=0, cursor=None)
    _forget(source, target, stored)


def _remove_copies(source: Engine, target: Engine, stored: StoredState) -> Iterator[CopyStep]:
    """Cancel the copied jobs in the target, then remove them."""
    schedules, done = watched_jobs(source), 0
    for walk in (walk for walk in WALKS if walk.is_counted):
        filter = replace(walk.filter, since_ms=stored.state.since_ms)
        for page in read_pages(partial(source.find, filter, limit=PAGE)):
            ids = [
                target.copied_id(job.id, job.task, job.unique_key, schedules.get(job.id))
                for job in page.records
            ]
            target.cancel(ids)
            target.discard(ids)
            done += len(ids)
            yield CopyStep("removing jobs", done)


def _forget(source: Engine, target: Engine, stored: StoredState) -> None:
    """Remove the documents of the copy, or only those of its late jobs. The state is removed last:
    a repeat needs it."""
    write_names(source, TARGET_QUEUES, ())
    if stored.state.is_late:
        write_mark(target, stored.state.id, Mark(source=source.location, is_done=True))
        stored.save(phase=Phase.DONE)
        return
    for title in (SOURCE_QUEUES, SOURCE_SCHEDULES):
        write_names(source, title, ())
    write_mark(target, stored.state.id, None)
    stored.remove()
