"""End a copy that is not complete: the source is opened, and the target forgets the copied jobs.

They are removed from the target first. Otherwise they would run on both sides, or run again after a
later copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from windlass.engine.contract import Engine
from windlass.engine_copy.beginning import find_unfinished
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
from windlass.engine_copy.source import all_queues, resume_queues, resume_schedules
from windlass.engine_copy.target import watched_jobs


def undo(source: Engine, target: Engine) -> Iterator[CopyStep]:
    """Remove the copied jobs from the target, and resume what the copy has paused. A repeat does
    what is left."""
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
    """Remove the jobs of the source from the target: first they are cancelled."""
    schedules, done = watched_jobs(source), 0
    for walk in WALKS:
        filter = replace(walk.filter, since_ms=stored.state.since_ms)
        cursor, is_first = None, True
        while walk.is_counted and (is_first or cursor is not None):
            is_first = False
            page = source.find(filter, cursor, PAGE)
            cursor = page.cursor
            ids = [
                target.copied_id(job.id, job.task, job.unique_key, schedules.get(job.id))
                for job in page.records
            ]
            target.cancel(ids)
            target.discard(ids)
            done += len(ids)
            yield CopyStep("removing jobs", done)


def _forget(source: Engine, target: Engine, stored: StoredState) -> None:
    """Forget the copy, or only its late jobs. The state goes last, so that a repeat finds it."""
    write_names(source, TARGET_QUEUES, ())
    if stored.state.is_late:
        write_mark(target, stored.state.id, Mark(source=source.location, is_done=True))
        stored.save(phase=Phase.DONE)
        return
    for title in (SOURCE_QUEUES, SOURCE_SCHEDULES):
        write_names(source, title, ())
    write_mark(target, stored.state.id, None)
    stored.remove()
