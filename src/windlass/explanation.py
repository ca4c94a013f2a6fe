"""Why a job does not run: `app.jobs.why(id)`.

1. `HoldKind` lists what can keep a job from running, and `JobHold` is one case: a sentence, and the
   command that resolves it. Names in a command are quoted: an operator pastes it into a shell.
2. `read_surroundings` reads what decides: paused queues and tasks, live sessions, the place in
   line. It is a fixed number of calls, and reads at most `MAX_AHEAD` jobs, however many there are.
3. `explain` lists the holds of a job, in the order in which to resolve them. It is pure.
4. `why_unroutable` is the reason of a job that workers claimed and could not run.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from windlass.audit_log import AuditRecord, read_audit
from windlass.core.durations import instant
from windlass.core.introduction import Introduction
from windlass.core.quantities import count
from windlass.core.queues.labels import labels_of, queue_of
from windlass.core.queues.plans import queue_names
from windlass.core.serialization.envelope import unpack
from windlass.core.serialization.frame import describe_sealed
from windlass.core.states import Hold, State
from windlass.engine.clock import read_clock
from windlass.engine.contract import Engine, Filter, JobRecord, SessionCommand, SessionRecord
from windlass.errors import DecodeError
from windlass.fleet import introduction_of
from windlass.job import held_because

#: The place in line is exact up to this number of jobs ahead.
MAX_AHEAD: Final = 500
#: Who paused a queue or task is looked for among this many of the newest changes.
MAX_CHANGES: Final = 200

_NOT_UNDERSTOOD: Final = (  # of a worker that stored no reason
    "no worker that claimed it has its task, accepts its arguments and reads its codec"
)
_START: Final = "windlass worker MODULE:APP"


class HoldKind(StrEnum):
    """What keeps a job from running; or that it runs, or has ended."""

    ENDED = "ended"
    RUNNING = "running"
    CANCELLING = "cancelling"  # it runs, and its cancellation was requested
    WORKER_SILENT = "worker_silent"  # it runs on a worker that does not send heartbeats
    EXPIRED = "expired"  # the time in which it had to start is over
    QUEUE_PAUSED = "queue_paused"
    TASK_PAUSED = "task_paused"
    UNROUTABLE = "unroutable"  # workers claimed it, and could not run it
    NO_WORKER = "no_worker"
    NO_WORKER_FOR_QUEUE = "no_worker_for_queue"
    NO_WORKER_FOR_LABELS = "no_worker_for_labels"
    NO_WORKER_FOR_TASK = "no_worker_for_task"
    WORKERS_QUIET = "workers_quiet"
    SCHEDULED = "scheduled"
    BACK_OFF = "back_off"  # it failed, and its next attempt is due later
    RUNS_ALONE = "runs_alone"  # a process died while it ran
    BEHIND_OTHERS = "behind_others"
    NEXT = "next"  # a worker should claim it at once
    OTHER = "other"


class JobHold(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a job does not run."""

    kind: HoldKind
    text: str  # a sentence
    command: str | None = None  # what resolves it, if a command does
    at: datetime | None = None  # when the job is due, was paused, or started
    by: str | None = None  # who paused it, if the audit trail has that


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job does not run, at one instant. The first hold is the one to resolve first."""

    id: str
    state: State
    holds: tuple[JobHold, ...]
    ahead: int | None  # the jobs that start before it; None if it is not in a line
    is_ahead_exact: bool  # false: at least this many


class _Serving(msgspec.Struct, frozen=True):
    """A live session, and what it says about itself."""

    record: SessionRecord
    known: Introduction

    @property
    def is_alive(self) -> bool:
        return self.record.expires_in_ms >= 0

    @property
    def worker(self) -> str:
        return f"{self.known.host}:{self.known.kind or self.known.worker}"

    def serves(self, queue: str) -> bool:
        names = queue_names(self.known.queues)
        return not names or queue in names


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether a job runs."""

    now_ms: int
    sessions: tuple[_Serving, ...]
    queue_paused: bool
    task_paused: bool
    changes: tuple[AuditRecord, ...] = ()  # the newest first; only of a paused job
    ahead: int | None = None
    is_ahead_exact: bool = False


# ------------------------------------------------------------------------------------- the engine


def read_surroundings(engine: Engine, record: JobRecord) -> Surroundings:
    """Read what decides whether a job runs, in a fixed number of bounded calls."""
    queue = queue_of(record.queue)
    queue_paused = any(one.queue == queue and one.paused for one in engine.queues())
    task_paused = record.task in engine.paused_tasks()
    is_paused = queue_paused or task_paused
    is_in_line = record.state is State.READY and record.hold is Hold.NONE and not record.suspect
    ahead, is_exact = _count_ahead(engine, record) if is_in_line else (None, False)
    return Surroundings(
        now_ms=read_clock(engine),
        sessions=tuple(_Serving(one, introduction_of(one)) for one in engine.sessions()),
        queue_paused=queue_paused,
        task_paused=task_paused,
        changes=tuple(read_audit(engine, "", MAX_CHANGES)) if is_paused else (),
        ahead=ahead,
        is_ahead_exact=is_exact,
    )


def _count_ahead(engine: Engine, record: JobRecord) -> tuple[int | None, bool]:
    """Count the jobs before this one in its line, exactly or at least."""
    filter = Filter(state=State.READY, queue=queue_of(record.queue))
    ahead = 0
    for one in engine.find(filter, limit=MAX_AHEAD).records:
        if one.id == record.id:
            return ahead, True
        ahead += one.queue == record.queue
    return ahead, False


# ------------------------------------------------------------------------------------ explanation


def explain(record: JobRecord, around: Surroundings) -> Explanation:
    """List what keeps a job from running. The record must have its stored payload."""
    if record.state.is_final:
        holds = [_ended(record)]
    elif record.state is State.RUNNING:
        holds = list(_running(record, around))
    else:
        holds = list(_waiting(record, around))
    return Explanation(
        id=record.id,
        state=record.state,
        holds=tuple(holds),
        ahead=around.ahead,
        is_ahead_exact=around.is_ahead_exact,
    )


def _ended(record: JobRecord) -> JobHold:
    at = instant(record.finished_ms)
    why = f" ({record.reason})" if record.reason else ""
    is_retried = record.state in (State.DEAD, State.CANCELLED)
    return JobHold(
        kind=HoldKind.ENDED,
        text=f"It has ended: {record.state}{why} at {_clock(at)}.",
        command=f"windlass job retry {record.id}" if is_retried else None,
        at=at,
    )


def _running(record: JobRecord, around: Surroundings) -> Iterator[JobHold]:
    at = instant(record.started_ms)
    serving = next((one for one in around.sessions if one.record.session == record.session), None)
    worker = f"{serving.worker} ({record.session})" if serving else str(record.session)
    if serving is None or not serving.is_alive:
        yield JobHold(
            kind=HoldKind.WORKER_SILENT,
            text=f"Its worker {worker} sends no heartbeats. The job goes back to its queue when "
            "the lease of the worker is over and another worker claims.",
            command="windlass workers",
        )
    if record.cancel_requested:
        yield JobHold(
            kind=HoldKind.CANCELLING,
            text="Its cancellation was requested. It ends as cancelled, unless it succeeds.",
        )
    yield JobHold(
        kind=HoldKind.RUNNING,
        text=f"It runs on the worker {worker} since {_clock(at)}.",
        command=f"windlass job show {record.id}",
        at=at,
    )


def _waiting(record: JobRecord, around: Surroundings) -> Iterator[JobHold]:
    """The holds of a job that waits, those first that a command resolves."""
    found = [*_expired(record, around), *_pauses(record, around), *_kept(record, around)]
    found += _missing(record, around)
    yield from found
    if record.state in (State.SCHEDULED, State.RETRYING):
        yield _due(record, around)
    elif record.suspect and record.hold is Hold.NONE:
        yield JobHold(
            kind=HoldKind.RUNS_ALONE,
            text="It must run alone, because a process died while it ran, or its task asks for a "
            "process of its own. It waits for a child with a single slot.",
            command="windlass workers",
        )
    elif not found:
        yield _in_line(record, around)


def _expired(record: JobRecord, around: Surroundings) -> Iterator[JobHold]:
    if record.expires_ms is not None and record.expires_ms <= around.now_ms:
        at = instant(record.expires_ms)
        yield JobHold(
            kind=HoldKind.EXPIRED,
            text=f"It had to start before {_clock(at)}. The next claim cancels it.",
            at=at,
        )


def _pauses(record: JobRecord, around: Surroundings) -> Iterator[JobHold]:
    queue = queue_of(record.queue)
    if around.queue_paused:
        yield _paused(HoldKind.QUEUE_PAUSED, "queue", queue, around)
    if around.task_paused:
        yield _paused(HoldKind.TASK_PAUSED, "task", record.task, around)


def _paused(kind: HoldKind, noun: str, name: str, around: Surroundings) -> JobHold:
    """A pause, with its actor and its time if it is among the newest changes."""
    actions = {f"{noun}.pause": True, f"http.pause_{noun}": True}
    actions |= {f"{noun}.resume": False, f"http.resume_{noun}": False}
    latest = next(
        (one for one in around.changes if one.subject == name and one.action in actions), None
    )
    if latest is not None and not actions[latest.action]:
        latest = None  # paused again by a program, which leaves no entry
    told = "" if latest is None else f" by {latest.actor} at {_clock(latest.at)}"
    return JobHold(
        kind=kind,
        text=f"The {noun} {name} was paused{told}." if told else f"The {noun} {name} is paused.",
        command=shlex.join(["windlass", noun, "resume", name]),
        at=None if latest is None else latest.at,
        by=None if latest is None else latest.actor,
    )


def _kept(record: JobRecord, around: Surroundings) -> Iterator[JobHold]:
    """The hold that the engine stores, except a pause."""
    if record.hold is Hold.UNROUTABLE:
        keys = {key for one in around.sessions for key in one.known.keys}
        at = instant(record.due_ms)
        again = "" if at is None else f" A worker tries again at {_clock(at)}."
        yield JobHold(
            kind=HoldKind.UNROUTABLE,
            text=f"Workers could not run it: {why_unroutable(record, keys)}.{again}",
            command=f"windlass job run-now {record.id}",
            at=at,
        )
    elif record.hold not in (Hold.NONE, Hold.PAUSED):
        yield JobHold(kind=HoldKind.OTHER, text=f"It is held: {record.hold}.")


def _missing(record: JobRecord, around: Surroundings) -> Iterator[JobHold]:
    """The first requirement that no live worker meets."""
    queue, labels = queue_of(record.queue), labels_of(record.queue)
    alive = [one for one in around.sessions if one.is_alive]
    options = f"-q {queue}" + "".join(f" --label {label}" for label in labels)
    start = f"{_START} {options}"
    if not alive:
        yield JobHold(kind=HoldKind.NO_WORKER, text="No worker is alive.", command=start)
        return
    serving = [one for one in alive if one.serves(queue)]
    if not serving:
        text = f"No live worker serves the queue {queue}."
        yield JobHold(kind=HoldKind.NO_WORKER_FOR_QUEUE, text=text, command=start)
        return
    labelled = [one for one in serving if set(labels) <= set(one.known.labels)]
    if not labelled:
        text = f"It requires {' and '.join(labels)}, and no worker for the queue {queue} has that."
        yield JobHold(kind=HoldKind.NO_WORKER_FOR_LABELS, text=text, command=start)
        return
    knowing = [one for one in labelled if not one.known.tasks or record.task in one.known.tasks]
    if not knowing:
        text = f"No worker for the queue {queue} has the task {record.task}."
        yield JobHold(kind=HoldKind.NO_WORKER_FOR_TASK, text=text, command=start)
        return
    yield from _quiet(knowing)


def _quiet(fit: Sequence[_Serving]) -> Iterator[JobHold]:
    if all(one.record.command is not SessionCommand.RUN for one in fit):
        names = sorted({one.worker for one in fit})
        workers = "The worker that could run it claims"
        if len(names) > 1:
            workers = f"The {len(names)} workers that could run it claim"
        are_quiet = any(one.record.command is SessionCommand.QUIET for one in fit)
        resume = shlex.join(["windlass", "workers", "resume", *names[:5]])
        yield JobHold(
            kind=HoldKind.WORKERS_QUIET,
            text=f"{workers} no more jobs: quiet or stopping.",
            command=resume if are_quiet else None,
        )


def _due(record: JobRecord, around: Surroundings) -> JobHold:
    at = instant(record.due_ms)
    is_over = record.due_ms is not None and record.due_ms <= around.now_ms
    when = f"has been due since {_clock(at)}" if is_over else f"is due at {_clock(at)}"
    if record.state is State.RETRYING:
        kind, text = (
            HoldKind.BACK_OFF,
            f"Attempt {record.counters.attempt} failed. The next {when}.",
        )
    else:
        kind, text = HoldKind.SCHEDULED, f"It {when}."
    return JobHold(kind=kind, text=text, command=f"windlass job run-now {record.id}", at=at)


def _in_line(record: JobRecord, around: Surroundings) -> JobHold:
    """How far the job is from a free slot."""
    slots, busy = _slots(record, around.sessions)
    are = "is" if slots == 1 else "are"
    told = f"{busy} of {count(slots, 'slot')} that could run it {are} busy."
    if not around.ahead and around.is_ahead_exact and busy < slots:
        return JobHold(
            kind=HoldKind.NEXT,
            text=f"Nothing holds it: it is the next of its queue, and {told}",
            command="windlass doctor",
        )
    least = "" if around.is_ahead_exact else "At least "
    start = "starts" if around.ahead == 1 else "start"
    ahead = f"{least}{count(around.ahead or 0, 'job')} {start}"
    queue = queue_of(record.queue)
    return JobHold(
        kind=HoldKind.BEHIND_OTHERS,
        text=f"{ahead} before it in the queue {queue}, and {told}",
        command="windlass top",
    )


def _slots(record: JobRecord, sessions: Iterable[_Serving]) -> tuple[int, int]:
    """The slots that could run a job, and how many of them have one."""
    queue, labels = queue_of(record.queue), set(labels_of(record.queue))
    slots = busy = 0
    for one in sessions:
        known = one.known
        fits = one.serves(queue) and labels <= set(known.labels) and not known.is_solo
        if one.is_alive and fits:
            slots, busy = slots + known.slots, busy + min(known.slots, one.record.jobs)
    return slots, busy


def _clock(at: datetime | None) -> str:
    return "an unknown time" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


# ------------------------------------------------------------------------------------- unroutable


def why_unroutable(record: JobRecord, keys: Collection[str]) -> str:
    """Why workers could not run a job that they claimed, as the end of a sentence. `keys` are the
    names of the keys of live workers. A sealed call names its key in plain text; any other reason
    is stored with the job by the worker that claimed it."""
    return _why_sealed(record, keys) or held_because(record) or _NOT_UNDERSTOOD


def _why_sealed(record: JobRecord, keys: Collection[str]) -> str:
    try:
        envelope = unpack(record.payload, record.task)
    except DecodeError:
        return ""
    if not envelope.seal or envelope.key in keys:
        return ""
    sealed = describe_sealed(envelope.seal, envelope.key)
    return f"it is {sealed}, which no worker has: start a worker with that secret"
