"""The thread that does bulk operations: `OperationRunner`.

1. Poll: find operations without an owner, or with one whose deadline has passed, and take them over
   by compare-and-set. Notice operations that a caller has stopped.
2. Step: read a page, store it, change its jobs; one page of each operation in turn. The counts of a
   page are stored together with the next page, so a page takes one write.
3. Wait as the rate of an operation demands, and renew the deadline meanwhile.
4. Pause a retry whose jobs fail again.
5. Remove operations that ended long ago.

Any number of runners may run, in any processes. A runner stops working on an operation as soon as a
write fails: then another runner owns it, or a caller has stopped it. A runner that was frozen past
its deadline writes before it changes anything.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from msgspec.structs import replace

from windlass.core.ids import new_session
from windlass.core.quantities import Pace
from windlass.dead_letters import PAGE
from windlass.engine.clock import read_clock
from windlass.engine.contract import Document, DocumentChange
from windlass.errors import EngineUnavailable, WindlassError
from windlass.operations.documents import (
    ACTIVE,
    KIND,
    change_of,
    readable_record,
    remove_mark,
    started_ms_of,
)
from windlass.operations.pages import (
    Counts,
    OperationAction,
    OperationRecord,
    OperationState,
    change_page,
    read_page,
)
from windlass.operations.replay import WatchedJob
from windlass.operations.retention import remove_old

if TYPE_CHECKING:
    from windlass.app import Windlass

#: Another runner may take over an operation this long after the last write of its owner.
LEASE_S: Final = 15.0
#: How often to poll for operations, in seconds.
POLL_S: Final = 1.0
#: How often to write progress, and to look at retried jobs, in seconds.
PROGRESS_S: Final = 1.0
#: The longest pause after the engine was unavailable, in seconds.
RETRY_S: Final = 2.0
#: One call of the engine lists this many active operations.
MARKS: Final = 100
#: How often to remove old operations, in seconds.
CLEAN_S: Final = 600.0
#: A mark without its operation is removed after this time: its start has failed halfway.
STRAY_MS: Final = 10 * 60 * 1000

log: Final = logging.getLogger("windlass.operations")


class _Lost(Exception):
    """Another runner owns the operation, or it has ended."""


class _Held:
    """An operation that this runner owns."""

    def __init__(
        self, document: Document, record: OperationRecord, mark: str, now_s: float
    ) -> None:
        self.document = document  # as stored
        self.record = record
        self.mark = mark  # the revision of its mark
        self.replay = record.replay
        self.observed_s = now_s
        self.unsaved = Counts()  # of jobs that were changed since the last write
        self.todo = record.pending
        #: This many of them, from the first on, may have been changed before.
        self.repeats = 0 if record.is_untouched else len(self.todo)
        self.pace = Pace(record.rate, now_s)
        self.due_s = now_s
        self.saved_s = now_s
        self.unconfirmed: tuple[DocumentChange, OperationRecord] | None = None

    @property
    def id(self) -> str:
        return self.document.key


class OperationRunner:
    """Does the bulk operations of an engine, in a thread. As a context manager it starts and
    stops."""

    def __init__(self, app: Windlass, *, lease_s: float = LEASE_S, only: str | None = None) -> None:
        """`only` is the id of the one operation to do."""
        self._app = app
        self._only = only
        self._lease_s = lease_s
        self._owner = new_session(socket.gethostname(), os.getpid())
        self._held: dict[str, _Held] = {}
        self._polls_s = 0.0
        self._cleans_s = 0.0
        self._is_away = False
        self._is_stopping = False
        self._wake = Event()
        self._thread = Thread(target=self._run, name="windlass-operations", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Poll for operations now. A caller that has started one need not wait."""
        self._polls_s = 0.0
        self._wake.set()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Finish the current step, and leave the rest to other runners."""
        self._is_stopping = True
        self._wake.set()
        self._thread.join(timeout_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # -------------------------------------------------------------------------------- the loop

    def _run(self) -> None:
        while not self._is_stopping:
            self._wake.clear()
            try:
                pause_s = self._turn()
            except EngineUnavailable as error:
                self._note_away(error)
                pause_s = RETRY_S
            except Exception:  # the operation waits for the next turn
                log.exception("bulk operations failed, retrying")
                pause_s = RETRY_S
            if not self._is_stopping:
                self._wake.wait(pause_s)
        self._release()

    def _turn(self) -> float:
        """Poll if it is time, and do a step of each operation that is due. Return the seconds until
        the next turn."""
        if time.monotonic() >= self._polls_s:
            self._polls_s = time.monotonic() + POLL_S
            self._poll()
            if time.monotonic() >= self._cleans_s:
                self._cleans_s = time.monotonic() + CLEAN_S
                remove_old(self._app.engine)
            self._is_away = False
        for held in list(self._held.values()):
            if self._is_stopping:
                break
            if held.due_s <= time.monotonic():
                self._attempt(held)
        now_s = time.monotonic()
        due_s = min((held.due_s for held in self._held.values()), default=self._polls_s)
        return max(0.0, min(due_s, self._polls_s) - now_s)

    def _note_away(self, error: EngineUnavailable) -> None:
        if not self._is_away:
            log.warning("lost connection to engine, retrying: %s", error)
        self._is_away = True

    # ------------------------------------------------------------------------------- polling

    def _poll(self) -> None:
        engine = self._app.engine
        marks = self._list_marks()
        ids = list(dict.fromkeys([*self._held, *reversed(marks)]))
        now_ms = read_clock(engine) if ids else 0
        documents = engine.get_documents(KIND, ids) if ids else []
        for id, document in zip(ids, documents, strict=True):
            mark = marks.get(id, "")
            if document is None:
                self._remove_stale_mark(id, mark, now_ms)
            elif id in self._held:
                self._check(self._held[id], document)
            elif (record := readable_record(document)) is not None:
                self._take_over(document, record, mark, now_ms)

    def _list_marks(self) -> dict[str, str]:
        """The ids of all active operations with the revisions of their marks, the newest first. All
        are read and held, however many: otherwise slow operations would keep others from
        running."""
        engine, marks, after = self._app.engine, dict[str, str](), ""
        if self._only is not None:
            (mark,) = engine.get_documents(ACTIVE, [self._only])
            return {} if mark is None else {mark.key: mark.revision}
        while page := engine.list_documents(ACTIVE, after, MARKS):
            marks |= {mark.key: mark.revision for mark in page}
            after = page[-1].key
            if len(page) < MARKS:
                break
        return marks

    def _remove_stale_mark(self, id: str, mark: str, now_ms: int) -> None:
        """Remove the mark of an operation that does not exist."""
        self._held.pop(id, None)
        if now_ms - started_ms_of(id) > STRAY_MS:
            remove_mark(self._app.engine, id, mark)

    def _check(self, held: _Held, document: Document) -> None:
        """Notice a lost operation, and renew the deadline of one that waits for its rate."""
        is_own = held.unconfirmed is not None and document.revision == held.unconfirmed[0].revision
        if document.revision != held.document.revision and not is_own:
            self._settle(held)
        elif self._is_old(held):
            self._attempt(held, renews=True)

    def _take_over(
        self, document: Document, record: OperationRecord, mark: str, now_ms: int
    ) -> None:
        """Take over an operation without an owner."""
        if record.state is not OperationState.RUNNING:
            remove_mark(self._app.engine, document.key, mark)
            return
        is_free = record.owner in ("", self._owner) or now_ms > record.owner_until_ms
        if not is_free:
            return
        held = _Held(document, record, mark, time.monotonic())
        try:
            self._save(held, record, now_ms)
        except _Lost:
            return
        self._held[held.id] = held
        verb = "taking over" if record.owner else "starting"
        log.info("%s operation %s: %s", verb, held.id, record.action)

    # --------------------------------------------------------------------------------- steps

    def _attempt(self, held: _Held, *, renews: bool = False) -> None:
        """Do a step, or only renew the deadline. An operation that fails ends."""
        try:
            if held.unconfirmed is not None:
                self._send(held, *held.unconfirmed)  # the engine recognises a repeated write
            if held.record.state is not OperationState.RUNNING:
                self._conclude(held)
                return
            if renews or self._is_old(held):
                self._save(held, replace(held.record, pending=held.todo))
            if not renews:
                self._step(held)
        except _Lost:
            self._settle(held)
        except EngineUnavailable:
            raise
        except Exception as error:  # stored with the operation, which ends
            log.exception("operation %s failed", held.id)
            self._end(held, OperationState.FAILED, f"{type(error).__name__}: {error}")

    def _step(self, held: _Held) -> None:
        if held.todo and (reason := self._observe(held)):
            self._suspend(held, reason)
        elif held.todo:
            self._change(held)
        elif held.record.is_read:
            self._end(held, OperationState.FINISHED)
        else:
            self._read(held)

    def _read(self, held: _Held) -> None:
        """Read the next page, and store it before a job of it is changed."""
        page = read_page(self._app.engine, held.record, PAGE)
        held.unsaved = held.unsaved.plus(Counts(failed=page.unreadable))
        self._save(held, replace(page.rest, pending=page.found))

    def _change(self, held: _Held) -> None:
        some, rest = held.todo[: held.pace.size], held.todo[held.pace.size :]
        is_repeat = held.repeats > 0
        held.repeats = max(held.repeats, len(some))  # until the engine has answered
        counts = change_page(self._app, held.record.action, some, is_repeat=is_repeat)
        held.unsaved = held.unsaved.plus(counts)
        held.todo, held.repeats = rest, held.repeats - len(some)
        if held.record.action is OperationAction.DEAD_RETRY:
            held.replay = held.replay.watching(WatchedJob(one.id, one.finished_ms) for one in some)
        now_s = time.monotonic()
        held.due_s = now_s + held.pace.pause_s(len(some), now_s)

    def _observe(self, held: _Held) -> str:
        """Look at retried jobs now and then. Return why the operation has to pause, if it has."""
        now_s = time.monotonic()
        if held.replay.watched and now_s - held.observed_s >= PROGRESS_S:
            held.replay = held.replay.observed(self._app.engine)
            held.observed_s = now_s
        return held.replay.verdict

    def _suspend(self, held: _Held, reason: str) -> None:
        """Pause an operation whose jobs fail again, until a caller resumes it."""
        log.warning("operation %s paused: %s", held.id, reason)
        paused = replace(self._given_up(held), state=OperationState.PAUSED, reason=reason)
        self._send(held, change_of(held.document, paused), paused)
        self._conclude(held)

    def _end(self, held: _Held, state: OperationState, error: str = "") -> None:
        record = replace(held.record, state=state, error=error, pending=held.todo)
        self._save(held, record)
        self._conclude(held)

    def _conclude(self, held: _Held) -> None:
        self._held.pop(held.id, None)
        remove_mark(self._app.engine, held.id, held.mark)
        log.info("operation %s %s: %d done", held.id, held.record.state, held.record.counts.done)
        self._audit(held)

    def _audit(self, held: _Held) -> None:
        record = held.record
        try:
            self._app.audit.add(
                actor=record.actor,
                action=f"operation.{record.state}",
                subject=held.id,
                details={
                    "action": record.action,
                    "done": record.counts.done,
                    "refused": record.counts.refused,
                    "failed": record.counts.failed,
                    "reason": record.reason,
                    "error": record.error,
                },
                outcome="failed" if record.state is OperationState.FAILED else "ok",
            )
        except WindlassError as error:
            log.error("operation %s has no audit entry: %s", held.id, error)

    # -------------------------------------------------------------------------------- writes

    def _is_old(self, held: _Held) -> bool:
        """Whether to write: others want to see the progress, and the deadline must not pass."""
        most_s = self._lease_s / 3 if held.unsaved == Counts() else PROGRESS_S
        return time.monotonic() - held.saved_s > min(most_s, self._lease_s / 3)

    def _save(self, held: _Held, record: OperationRecord, now_ms: int | None = None) -> None:
        """Store a record as the owner, with all counts."""
        now_ms = read_clock(self._app.engine) if now_ms is None else now_ms
        record = replace(
            record,
            counts=held.record.counts.plus(held.unsaved),
            replay=held.replay,
            updated_ms=now_ms,
            owner=self._owner,
            owner_until_ms=now_ms + int(self._lease_s * 1000),
            is_untouched=False,
        )
        self._send(held, change_of(held.document, record), record)

    def _send(self, held: _Held, change: DocumentChange, record: OperationRecord) -> None:
        held.unconfirmed = (change, record)
        sent_s = time.monotonic()
        is_saved = self._app.engine.change_documents([change])[0]
        held.unconfirmed = None
        if not is_saved:
            raise _Lost
        held.document = Document(
            kind=KIND, key=held.id, revision=change.revision, body=change.body or b""
        )
        held.record, held.unsaved, held.saved_s = record, Counts(), sent_s
        held.todo = record.pending

    def _settle(self, held: _Held) -> None:
        """Let go of an operation. If a caller has stopped it, add what was changed since the last
        write."""
        while True:
            (document,) = self._app.engine.get_documents(KIND, [held.id])
            record = None if document is None else readable_record(document)
            if document is None or record is None or record.owner != self._owner:
                log.warning("operation %s was taken over", held.id)
                break
            if record.state is OperationState.RUNNING:
                break  # left to the next poll
            left = self._given_up(held)
            counts = left.counts
            settled = replace(
                left,
                state=record.state,
                reason=record.reason,
                updated_ms=record.updated_ms,
                pending=left.pending if record.state is OperationState.PAUSED else (),
            )
            if self._app.engine.change_documents([change_of(document, settled)])[0]:
                log.info("operation %s %s: %d done", held.id, record.state, counts.done)
                break
        self._held.pop(held.id, None)

    @staticmethod
    def _given_up(held: _Held) -> OperationRecord:
        """The record of an operation for the next runner."""
        return replace(
            held.record,
            counts=held.record.counts.plus(held.unsaved),
            replay=held.replay,
            pending=held.todo,
            is_untouched=not held.repeats,
            owner="",
            owner_until_ms=0,
        )

    def _leave(self, held: _Held) -> None:
        """Let go of an operation that a caller has paused or stopped as the runner ends."""
        try:
            self._settle(held)
        except WindlassError as error:
            log.warning("operation %s was not settled: %r", held.id, error)

    def _release(self) -> None:
        """Leave the operations to other runners at once. Without the engine their deadlines
        pass."""
        for held in list(self._held.values()):
            record = self._given_up(held)
            try:
                if held.unconfirmed is None:
                    self._send(held, change_of(held.document, record), record)
            except _Lost:
                self._leave(held)
            except WindlassError as error:
                log.warning("operation %s was not released: %r", held.id, error)
        self._held.clear()
