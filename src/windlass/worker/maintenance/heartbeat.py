"""The heartbeat of a worker: one thread that beats for the living children, and does nothing else.

1. Beat every third of a lease, and at once for a new session.
2. Every third beat, and the first one of a session, describes the session. Every third one also
   lists the nonces of the child.
3. Pass on the replies of the engine: sessions that are gone, jobs to cancel.

The heartbeat has its own engine object with its own connections. So a beat never waits for other
calls of the worker, such as a sweep of large dead letters over a slow link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from threading import Event, Thread
from time import monotonic
from typing import Final, Protocol

from windlass.engine.contract import Beat, Engine
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.logs.outage import Contact

#: Beats in one lease.
BEATS: Final = 3
#: Every n-th beat lists the nonces.
TELLING: Final = 3


class Living(Protocol):
    """A child to beat for."""

    session: str  # empty before the first one
    table: SlotTable
    introduction: bytes
    introduced: str  # the session that was described to the engine

    def is_running(self) -> bool: ...


class Heartbeat:
    """For the children that `living` returns. The callbacks are called in its thread."""

    def __init__(
        self,
        engine: Engine,
        lease_ms: int,
        living: Callable[[], Sequence[Living]],
        on_gone: Callable[[str], None],
        on_cancel: Callable[[str, tuple[str, ...]], None],
        contact: Contact,
        *,
        ends_engine: bool = True,
    ) -> None:
        self._engine = engine
        self._every_s = lease_ms / 1000 / BEATS
        self._living = living
        self._on_gone = on_gone
        self._on_cancel = on_cancel
        self._contact = contact
        self._ends_engine = ends_engine
        self._beats = count(1)
        self._wake = Event()
        self._is_stopping = False
        self._is_place_new = False  # the engine has lost its data
        self._thread = Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def beat_soon(self) -> None:
        """Beat at once for a new session, which the engine does not know."""
        self._wake.set()

    def introduce_again(self) -> None:
        """Describe all sessions again: the engine has lost its data."""
        self._is_place_new = True
        self._wake.set()

    def stop(self, timeout_s: float) -> None:
        self._is_stopping = True
        self._wake.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._is_stopping:
            self._wake.clear()  # before the beat: a request during the beat is for the next one
            begin = monotonic()
            wait_s = self._contact.attempt(self, self._beat)
            self._wake.wait(max(0.0, begin + min(wait_s, self._every_s) - monotonic()))
        if self._ends_engine:
            self._engine.shutdown()

    def _beat(self) -> float:
        """Beat; return the seconds from the start of this beat to the start of the next one."""
        children = [child for child in self._living() if child.session and child.is_running()]
        if self._is_place_new:
            self._is_place_new = False
            for child in children:
                child.introduced = ""
        tells_nonces = next(self._beats) % TELLING == 0
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
        return self._every_s


def _beat_of(child: Living, tells_nonces: bool) -> Beat:
    session = child.session
    info = child.introduction if tells_nonces or child.introduced != session else b""
    if not tells_nonces:
        return Beat(session=session, info=info)
    # Read the newest first: a nonce that is announced meanwhile is newer, and this beat does not
    # affect it.
    newest = "".join(child.table.newest_nonce.read())
    nonces = tuple(child.table.nonces.read())
    return Beat(session=session, nonces=nonces, newest=newest, info=info)
