"""The heartbeat of a worker: one thread that only sends heartbeats for the living children.

1. Beat every third of a lease, and at once for a new session.
2. Every third beat, and the first one of a session, describes the session. Every third one also
   lists the nonces of the child.
3. Beat every second while a job has been running for that long: it may have been cancelled.
4. Pass on the replies of the engine: sessions that are gone, jobs to cancel, commands of operators
   (`session_commands`).

The heartbeat has its own engine object with its own connections. So a beat never waits for other
calls of the worker, such as a sweep of large dead letters over a slow link.

Heartbeat and maintenance share one `Contact`, which logs outages of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from logging import getLogger
from random import uniform
from threading import Event, Lock, Thread
from time import monotonic
from typing import Final, Protocol

from windlass.engine.contract import Beat, Engine, SessionCommand
from windlass.errors import EngineError
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.logs.events import LogEvent
from windlass.worker.maintenance.session_commands import CommandWatch

log = getLogger("windlass.worker")

#: Beats in one lease.
BEATS: Final = 3
#: Every n-th beat lists the nonces.
TELLING: Final = 3
#: The longest wait before a retry, in seconds.
AGAIN_S: Final = 1.0
#: A job that has run for this long is cancelled within this time.
LONG_RUN_S: Final = 1.0


class Living(Protocol):
    """A child that needs heartbeats."""

    session: str  # empty before the first session
    table: SlotTable
    introduction: bytes
    introduced: str  # the session that was described to the engine

    def is_running(self) -> bool: ...


class Contact:
    """State of the connection to one engine, shared by several threads, so that an outage is logged
    once. The end of an outage is logged when every call that failed has succeeded: a read may
    succeed while writes still fail."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._lock = Lock()
        self._failed: set[object] = set()
        self._is_outage_logged = False
        self.answered_at = 0.0  # by the monotonic clock; 0 before the first answer

    def attempt(self, duty: object, action: Callable[[], float]) -> float:
        """Call `action`. Return the seconds until the next call, which is soon after a failure."""
        try:
            wait_s = action()
        except EngineError as error:
            self._note_away(duty, error)
        except Exception:
            log.exception(LogEvent.UPKEEP_FAILED)
        else:
            self._note_back(duty)
            return wait_s
        return uniform(0.2, AGAIN_S)

    def _note_away(self, duty: object, error: EngineError) -> None:
        with self._lock:
            if self.answered_at and not self._is_outage_logged:
                log.warning(LogEvent.SUPERVISOR_ENGINE_AWAY, error)
                self._is_outage_logged = True
            elif not self.answered_at and not self._failed:
                log.warning(LogEvent.ENGINE_AWAITED, error)
            self._failed.add(duty)

    def _note_back(self, duty: object) -> None:
        if duty not in self._failed and not self._is_outage_logged:
            return
        with self._lock:
            self._failed.discard(duty)
            if self._is_outage_logged and not self._failed:
                log.warning(LogEvent.SUPERVISOR_ENGINE_BACK, self._location)
                self._is_outage_logged = False


class Heartbeat:
    """Sends heartbeats for the children that `living` returns. Its thread calls the callbacks."""

    def __init__(
        self,
        engine: Engine,
        lease_ms: int,
        living: Callable[[], Sequence[Living]],
        on_gone: Callable[[str], None],
        on_cancel: Callable[[str, tuple[str, ...]], None],
        on_command: Callable[[SessionCommand], None],
        contact: Contact,
        *,
        ends_engine: bool = True,
    ) -> None:
        self._engine = engine
        self._every_s = lease_ms / 1000 / BEATS
        self._living = living
        self._on_gone = on_gone
        self._on_cancel = on_cancel
        self._command = CommandWatch(engine, on_command)
        self.note_stop = self._command.note_stop
        self._contact = contact
        self._ends_engine = ends_engine
        self._beats = count(1)
        self._wake = Event()
        self._is_stopping = False
        self._is_asked = False
        self._is_place_new = False  # the engine has lost its data
        self._seen: set[str] = set()  # the jobs that ran at the last look
        self._thread = Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def beat_soon(self) -> None:
        """Beat at once for a new session, which the engine does not know."""
        self._is_asked = True
        self._wake.set()

    def introduce_again(self) -> None:
        """Describe all sessions again: the engine has lost its data."""
        self._is_place_new = True
        self.beat_soon()

    def stop(self, timeout_s: float) -> None:
        self._is_stopping = True
        self._wake.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        due_at = 0.0
        while not self._is_stopping:
            self._wake.clear()  # before the beat: a request during the beat is for the next one
            begin = monotonic()
            is_asked, self._is_asked = self._is_asked, False
            is_due = is_asked or begin >= due_at
            has_long_run = self._look_for_long_run()
            if is_due or has_long_run:
                wait_s = self._contact.attempt(self, partial(self._beat, is_due))
                due_at = begin + min(wait_s, self._every_s) if is_due else due_at
            self._wake.wait(max(0.0, min(due_at, begin + LONG_RUN_S) - monotonic()))
        if self._ends_engine:
            self._engine.shutdown()

    def _look_for_long_run(self) -> bool:
        """Whether a job runs that already ran at the last look."""
        running = {id for child in self._living() for id in child.table.occupied()}
        seen, self._seen = self._seen, running
        return not running.isdisjoint(seen)

    def _beat(self, is_due: bool) -> float:
        """Beat; return the seconds from the start of this beat to the start of the next one. A beat
        between two due ones only extends leases and asks for cancellations."""
        children = [child for child in self._living() if child.session and child.is_running()]
        if self._is_place_new:
            self._is_place_new = False
            for child in children:
                child.introduced = ""
        tells_nonces = is_due and next(self._beats) % TELLING == 0
        sent_at = monotonic()
        pulses = self._engine.beat([_beat_of(child, tells_nonces) for child in children])
        for child, pulse in zip(children, pulses, strict=True):
            child.introduced = pulse.session
            if pulse.alive:
                child.table.confirm_beat(sent_at)
            else:
                self._on_gone(pulse.session)
            if pulse.cancel:
                self._on_cancel(pulse.session, pulse.cancel)
        self._command.note({child.session for child in self._living()}, pulses)
        return self._every_s


def _beat_of(child: Living, tells_nonces: bool) -> Beat:
    session = child.session
    info = child.introduction if tells_nonces or child.introduced != session else b""
    if not tells_nonces:
        return Beat(session=session, info=info)
    # Read the newest nonce before the list: a nonce announced meanwhile is newer, and this beat
    # does not affect it.
    newest = "".join(child.table.newest_nonce.read())
    nonces = tuple(child.table.nonces.read())
    return Beat(session=session, nonces=nonces, newest=newest, info=info)
