"""The live workers of an engine, assembled from their sessions, and commands to them.

1. A worker is a supervisor with its children; each child has a session. Sessions of the worker
   protocol with the same name are one worker. Sessions with an expired lease count as dead.
2. A command is stored for all sessions of a worker. Each of them gets it with its next heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from windlass.core.durations import instant
from windlass.core.ids import release_of
from windlass.core.introduction import Introduction
from windlass.core.queues.labels import queue_of
from windlass.core.states import State
from windlass.engine.contract import Engine, SessionCommand, SessionRecord
from windlass.errors import WorkerNotFound
from windlass.twins import Steps, act

#: The most running jobs to read.
MAX_RUNNING: Final = 500
#: A child is silent when its last heartbeat is older than this part of its lease: 1.5 heartbeats.
SILENT_PART: Final = 0.5

#: A command, or its name.
WorkerCommand: TypeAlias = SessionCommand | Literal["run", "quiet", "stop"]


class WorkerState(StrEnum):
    """What an operator, or a signal, asked of a worker. The worker obeys within a heartbeat, a
    third of its lease."""

    RUNNING = "running"  # it claims jobs
    QUIET = "quiet"  # it claims no more, and its running jobs continue
    STOPPING = "stopping"  # it ends when its running jobs have ended, or their grace is over


#: The state after each command; the last of several is the strongest.
_STATES: Final = {
    SessionCommand.RUN: WorkerState.RUNNING,
    SessionCommand.QUIET: WorkerState.QUIET,
    SessionCommand.STOP: WorkerState.STOPPING,
}


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
    command: SessionCommand = SessionCommand.RUN  # of an operator; its next heartbeat gets it
    release: str | None = None  # the setting release of its app

    @property
    def state(self) -> WorkerState:
        return _STATES[self.command]

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
    kind: str = ""  # "http" for a worker that uses the worker protocol
    tasks: tuple[str, ...] = ()  # the tasks of such a worker
    state: WorkerState = WorkerState.RUNNING  # of all its children
    release: str | None = None  # of its children; several, if newer children have newer code
    least_children: int = 0  # of a worker that scales their number; 0 if it is fixed
    most_children: int = 0

    @property
    def name(self) -> str:
        """The name that commands take: host and pid, as in web-1:4711."""
        return f"{self.host}:{self.place}"

    @property
    def place(self) -> str:
        """The pid, or the kind of a worker whose pid is not known."""
        return self.kind or str(self.pid)

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
    workers: dict[tuple[str, int, str], list[tuple[Introduction, ChildInfo]]] = {}
    for record in sessions:
        known = introduction_of(record)
        child = _child(record, known, running)
        workers.setdefault((known.host, known.worker, known.kind), []).append((known, child))
    return [_worker(*place, members) for place, members in sorted(workers.items())]


class FleetSize(msgspec.Struct, frozen=True, kw_only=True):
    """The number of live workers and of their slots. Solo children are left out."""

    workers: int
    slots: int
    busy_slots: int  # with a claimed job


def count_fleet(engine: Engine) -> FleetSize:
    """Count live workers and slots, without a read of their jobs."""
    workers: set[tuple[str, int, str]] = set()
    slots = busy = 0
    for record in engine.sessions():
        if record.expires_in_ms >= 0:
            known = introduction_of(record)
            workers.add((known.host, known.worker, known.kind))
            own = 0 if known.is_solo else known.slots
            slots, busy = slots + own, busy + min(own, record.jobs)
    return FleetSize(workers=len(workers), slots=slots, busy_slots=busy)


def commanding(names: Iterable[str], command: WorkerCommand) -> Steps[list[WorkerInfo]]:
    """Command workers by name or session."""
    if isinstance(names, str):
        raise TypeError(f"names must be a list of workers, found {names!r}: write [{names!r}]")
    if command not in tuple(SessionCommand):
        known = ", ".join(SessionCommand)
        raise ValueError(f"command must be one of {known}, found {command!r}")
    return (yield from act(command_fleet, tuple(names), SessionCommand(command)))


def command_fleet(
    engine: Engine, names: Sequence[str], command: SessionCommand
) -> list[WorkerInfo]:
    """Command workers; return them with their new state. A worker that is stopping stays so. A
    worker that has ended meanwhile is left out. If a name is unknown, no worker is commanded."""
    fleet = read_fleet(engine)
    chosen: dict[tuple[ChildInfo, ...], WorkerInfo] = {}
    for name in names:
        worker = _find(fleet, name)
        if worker is None:
            raise WorkerNotFound(name, engine.location, tuple(one.name for one in fleet))
        chosen[worker.children] = worker
    return [told for worker in chosen.values() if (told := _command(engine, worker, command))]


def _find(fleet: Iterable[WorkerInfo], name: str) -> WorkerInfo | None:
    """Return the worker with this name or session. A session of the worker protocol is a process of
    its own: the other sessions of its worker are left out."""
    for worker in fleet:
        own = tuple(child for child in worker.children if child.session == name)
        if worker.name == name or (own and not worker.kind):
            return worker
        if own:
            return replace(worker, children=own, state=_state_of(own))
    return None


def _command(engine: Engine, worker: WorkerInfo, command: SessionCommand) -> WorkerInfo | None:
    if worker.state is WorkerState.STOPPING:
        return worker
    are_alive = engine.command([child.session for child in worker.children], command)
    children = tuple(
        replace(child, command=command)
        for child, is_alive in zip(worker.children, are_alive, strict=True)
        if is_alive
    )
    return replace(worker, children=children, state=_STATES[command]) if children else None


def introduction_of(record: SessionRecord) -> Introduction:
    """Return the introduction of a session, or host and pid of its id, host.pid.random."""
    known = Introduction.unpack(record.info)
    if known.worker or known.kind:
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
        command=record.command,
        release=release_of(record.session),
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


def _worker(
    host: str, pid: int, kind: str, members: Iterable[tuple[Introduction, ChildInfo]]
) -> WorkerInfo:
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
        kind=kind,
        tasks=tuple(sorted({task for one in known for task in one.tasks})),
        state=_state_of(children),
        release=", ".join(sorted({one.release for one in children if one.release})) or None,
        least_children=first.least_children,
        most_children=first.most_children,
    )


def _state_of(children: Iterable[ChildInfo]) -> WorkerState:
    """Return the weakest state of the children: a worker is quiet when all of them are."""
    states = {child.state for child in children}
    return next(state for state in WorkerState if state in states)
