"""The live workers of an engine, assembled from their sessions.

A worker is a supervisor with its children; each child has a session. Sessions with an expired lease
count as dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from windlass.core.durations import instant
from windlass.core.introduction import Introduction
from windlass.core.queues.labels import queue_of
from windlass.core.states import State
from windlass.engine.contract import Engine, SessionRecord

#: The most running jobs to read.
MAX_RUNNING: Final = 500
#: A child is silent when its last heartbeat is older than this part of its lease: 1.5 heartbeats.
SILENT_PART: Final = 0.5


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a child of a worker runs."""

    id: str
    task: str
    queue: str
    attempt: int
    started_at: datetime | None


class ChildInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One process in which jobs run."""

    session: str
    pid: int
    slots: int
    is_solo: bool
    expires_in_ms: int
    lease_ms: int  # 0 if the worker does not say
    jobs: int  # the claimed jobs; a few of them may not have started
    running: tuple[RunningJob, ...]

    @property
    def beat_age_ms(self) -> int:
        """The time since its last heartbeat."""
        return max(0, self.lease_ms - self.expires_in_ms)

    @property
    def is_silent(self) -> bool:
        return self.beat_age_ms > SILENT_PART * self.lease_ms


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A live worker at one instant: a supervisor and its children, or an embedded worker."""

    host: str
    pid: int  # of the supervisor
    app: str
    version: str
    queues: tuple[str, ...]  # every queue when empty
    labels: tuple[str, ...]
    keys: tuple[str, ...]  # the names of its keys for sealed calls
    started_at: datetime | None  # by the clock of its machine
    children: tuple[ChildInfo, ...]

    @property
    def silent(self) -> tuple[ChildInfo, ...]:
        """The children without a recent heartbeat."""
        return tuple(child for child in self.children if child.is_silent)

    @property
    def slots(self) -> int:
        """How many jobs it runs at a time."""
        return sum(child.slots for child in self.children if not child.is_solo)

    @property
    def jobs(self) -> int:
        """How many jobs it has claimed; a few of them may not have started."""
        return sum(child.jobs for child in self.children)


def read_fleet(engine: Engine) -> list[WorkerInfo]:
    """Every live worker, by host and pid."""
    sessions = [record for record in engine.sessions() if record.expires_in_ms >= 0]
    running = _running(engine, [id for record in sessions for id in record.held][:MAX_RUNNING])
    workers: dict[tuple[str, int], list[tuple[Introduction, ChildInfo]]] = {}
    for record in sessions:
        known = _introduction(record)
        child = _child(record, known, running)
        workers.setdefault((known.host, known.worker), []).append((known, child))
    return [_worker(*place, members) for place, members in sorted(workers.items())]


def _introduction(record: SessionRecord) -> Introduction:
    """Return the introduction of a session, or host and pid of its id, host.pid.random."""
    known = Introduction.unpack(record.info)
    if known.worker:
        return known
    host, _, rest = record.session.partition(".")
    pid = int(rest.partition(".")[0]) if rest.partition(".")[0].isdecimal() else 0
    return Introduction(host=host, worker=pid, child=pid)


def _child(record: SessionRecord, known: Introduction, running: dict[str, RunningJob]) -> ChildInfo:
    return ChildInfo(
        session=record.session,
        pid=known.child,
        slots=known.slots,
        is_solo=known.is_solo,
        expires_in_ms=record.expires_in_ms,
        lease_ms=known.lease_ms,
        jobs=record.jobs,
        running=tuple(running[id] for id in record.held if id in running),
    )


def _running(engine: Engine, ids: Sequence[str]) -> dict[str, RunningJob]:
    return {
        record.id: RunningJob(
            id=record.id,
            task=record.task,
            queue=queue_of(record.queue),
            attempt=record.counters.attempt,
            started_at=None if record.started_ms is None else instant(record.started_ms),
        )
        for record in engine.get(ids)
        if record is not None and record.state is State.RUNNING
    }


def _worker(host: str, pid: int, members: Iterable[tuple[Introduction, ChildInfo]]) -> WorkerInfo:
    known, children = zip(*members, strict=True)
    first = min(known, key=lambda one: one.started_ms)
    return WorkerInfo(
        host=host,
        pid=pid,
        app=first.app,
        version=first.version,
        queues=first.queues,
        labels=first.labels,
        keys=first.keys,
        started_at=instant(first.started_ms) if first.started_ms else None,
        children=tuple(children),
    )
