"""Sessions that were lost lately, with their jobs, and jobs that may have killed processes.

1. `LostSession` is a session whose worker died or fell silent, or whose process crashed. Each is a
   document of the engine, under the name of the session; the last 100 are kept.
2. `note_loss` stores one. It is called where a session is ended for a dead process, never while
   jobs are claimed or finished. A failure is logged: the jobs are safe, and only the note is lost.
3. `SessionWatch` notes sessions whose lease has expired. The engine ends them within the claim of
   any worker, so the watch compares two looks at the live sessions. A session that held jobs is
   lost only if the history of one of them says so.
4. `read_lost` and `read_suspects` read them for operators.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from windlass.core.durations import instant
from windlass.core.ids import random_digits, release_of
from windlass.core.introduction import Introduction
from windlass.core.queues.labels import queue_of
from windlass.core.states import Event, Reason, State
from windlass.engine.clock import read_clock
from windlass.engine.contract import (
    MAX_DOCUMENT_CHANGES,
    Document,
    DocumentChange,
    Engine,
    Filter,
    JobRecord,
    SessionRecord,
)
from windlass.errors import EngineError
from windlass.fleet import introduction_of

KIND: Final = "lost-session"
#: The engine keeps this many lost sessions.
MAX_KEPT: Final = 100
#: A lost session names at most this many of its jobs.
MAX_JOBS: Final = 20
#: The most suspects to read, and the latest dead jobs among which to look for crashed ones.
MAX_SUSPECTS: Final = 100
MAX_DEAD: Final = 200
#: How often a watch looks at the sessions, in seconds, and how much longer it waits for each of
#: them: then all watches of a large fleet read only a few records a second.
LOOK_S: Final = 15.0
PER_SESSION_S: Final = 0.2

log: Final = logging.getLogger("windlass.lost_sessions")


class LossKind(StrEnum):
    """How a session was lost."""

    EXPIRED = "expired"  # it sent no heartbeat for a lease
    DIED = "died"  # another worker of its machine found its processes dead
    CRASHED = "crashed"  # its process died, and its supervisor closed it


class LostJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a lost session held."""

    id: str
    task: str
    queue: str
    is_suspect: bool  # it ran when the process died
    state: State | None = None  # what became of it; None if it was removed


class LostSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that ended without being closed by its own process."""

    session: str
    kind: LossKind
    cause: str
    at: datetime  # when it was noticed
    worker: str  # host and pid
    app: str
    release: str | None
    queues: tuple[str, ...]  # every queue when empty
    job_count: int
    jobs: tuple[LostJob, ...]  # at most 20 of them


class SuspectJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was running when processes died."""

    id: str
    task: str
    queue: str
    state: State
    reason: Reason | None
    crashes: int
    losses: int
    at: datetime | None  # when it was enqueued or, if it is dead, when it died


class Suspects(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that wait to run alone, and jobs that died because of crashes or lost workers."""

    waiting: tuple[SuspectJob, ...]
    is_exact: bool  # false: more than these wait
    dead: tuple[SuspectJob, ...]  # among the latest dead jobs


class _StoredLoss(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a document."""

    kind: LossKind
    cause: str
    at_ms: int
    worker: str
    app: str = ""
    queues: tuple[str, ...] = ()
    job_count: int = 0
    jobs: tuple[LostJob, ...] = ()


# ------------------------------------------------------------------------------------------- notes


def note_loss(
    engine: Engine,
    session: str,
    kind: LossKind,
    cause: str,
    known: Introduction,
    records: Sequence[JobRecord],
    *,
    job_count: int | None = None,
    suspects: Iterable[str] = (),
) -> None:
    """Store a lost session with its jobs, unless it is stored already."""
    ran = set(suspects)
    stored = _StoredLoss(
        kind=kind,
        cause=cause,
        at_ms=read_clock(engine),
        worker=f"{known.host}:{known.kind or known.worker}",
        app=known.app,
        queues=known.queues,
        job_count=len(records) if job_count is None else job_count,
        jobs=tuple(_lost_job(record, record.id in ran) for record in records[:MAX_JOBS]),
    )
    change = DocumentChange(
        kind=KIND,
        key=session,
        expected="",
        revision=random_digits(26),
        body=msgspec.json.encode(stored),
    )
    if engine.change_documents([change])[0]:
        _remove_oldest(engine)


def try_note_loss(
    engine: Engine,
    session: str,
    kind: LossKind,
    cause: str,
    known: Introduction,
    ids: Sequence[str],
    *,
    job_count: int,
    suspects: Iterable[str] = (),
) -> None:
    """Note a session that was ended. An engine error is logged, and not raised."""
    try:
        records = [one for one in engine.get(ids[:MAX_JOBS]) if one is not None]
        note_loss(
            engine, session, kind, cause, known, records, job_count=job_count, suspects=suspects
        )
    except EngineError as error:
        log.warning("lost session %s is not in the list: %s", session, error)


def _lost_job(record: JobRecord, is_suspect: bool) -> LostJob:
    return LostJob(
        id=record.id, task=record.task, queue=queue_of(record.queue), is_suspect=is_suspect
    )


def _remove_oldest(engine: Engine) -> None:
    found = _list(engine)
    old = [document for document, _ in found[MAX_KEPT:]][:MAX_DOCUMENT_CHANGES]
    if old:
        engine.change_documents(
            [
                DocumentChange(
                    kind=KIND,
                    key=one.key,
                    expected=one.revision,
                    revision=random_digits(26),
                    body=None,
                )
                for one in old
            ]
        )


def _list(engine: Engine) -> list[tuple[Document, _StoredLoss]]:
    """All lost sessions, the latest first. Those of a newer version are left out."""
    found = []
    for document in engine.list_documents(KIND, limit=2 * MAX_KEPT):
        try:
            found.append((document, msgspec.json.decode(document.body, type=_StoredLoss)))
        except msgspec.DecodeError as error:
            log.error("ignoring unreadable lost session %s: %s", document.key, error)
    return sorted(found, key=lambda one: one[1].at_ms, reverse=True)


# ------------------------------------------------------------------------------------------- watch


class SessionWatch:
    """Notes sessions whose lease has expired, in any process that looks now and then."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._before: dict[str, SessionRecord] = {}
        self._looked_s = 0.0

    def look(self) -> float:
        """Compare the sessions with those of the last look; return the seconds until the next."""
        now_s = self._clock()
        found = {one.session: one for one in self._engine.sessions()}
        passed_ms = int((now_s - self._looked_s) * 1000)
        for session, before in self._before.items():
            if session not in found and before.expires_in_ms <= passed_ms:
                self._examine(before, passed_ms)
        self._before, self._looked_s = found, now_s
        return LOOK_S + PER_SESSION_S * len(found)

    def _examine(self, before: SessionRecord, passed_ms: int) -> None:
        """Note a session that is gone, if it was lost. Another one was closed after its last
        heartbeat, which was after the last look."""
        known = introduction_of(before)
        lost = [
            record
            for record in self._engine.get(before.held)
            if record is not None and _was_lost(record, before.session)
        ]
        # Without a job as a witness: its last heartbeat was late at the last look, and that was not
        # long ago. A heartbeat comes every third of a lease.
        is_silent = not before.jobs and passed_ms <= known.lease_ms * 2 // 3
        if lost or is_silent:
            cause = "no heartbeat for a lease"
            note_loss(self._engine, before.session, LossKind.EXPIRED, cause, known, lost)


def _was_lost(record: JobRecord, session: str) -> bool:
    return any(one.event == Event.LOSE and one.session == session for one in record.failures)


# ----------------------------------------------------------------------------------------- reading


def read_lost(engine: Engine, limit: int = 20) -> list[LostSession]:
    """The sessions that were lost last, the latest first, with the state of their jobs now."""
    found = _list(engine)[:limit]
    ids = [job.id for _, stored in found for job in stored.jobs]
    ends = engine.ends(ids) if ids else []
    states = {end.id: end.state for end in ends if end is not None}
    return [
        LostSession(
            session=document.key,
            kind=stored.kind,
            cause=stored.cause,
            at=instant(stored.at_ms),
            worker=stored.worker,
            app=stored.app,
            release=release_of(document.key),
            queues=stored.queues,
            job_count=stored.job_count,
            jobs=tuple(
                msgspec.structs.replace(job, state=states.get(job.id)) for job in stored.jobs
            ),
        )
        for document, stored in found
    ]


def read_suspects(engine: Engine) -> Suspects:
    """The jobs that wait to run alone, and those that died after crashes or losses. Reads a
    bounded number of jobs."""
    page = engine.find(Filter(suspects=True), limit=MAX_SUSPECTS)
    dead = engine.find(Filter(state=State.DEAD), limit=MAX_DEAD).records
    died = [one for one in dead if one.reason in (Reason.CRASHED, Reason.LOST)]
    return Suspects(
        waiting=tuple(map(_suspect, page.records)),
        is_exact=page.cursor is None,
        dead=tuple(map(_suspect, died)),
    )


def _suspect(record: JobRecord) -> SuspectJob:
    return SuspectJob(
        id=record.id,
        task=record.task,
        queue=queue_of(record.queue),
        state=record.state,
        reason=record.reason,
        crashes=record.counters.crashes,
        losses=record.counters.losses,
        at=instant(record.finished_ms or record.created_ms),
    )
