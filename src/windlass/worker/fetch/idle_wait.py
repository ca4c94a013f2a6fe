"""The waiting of an idle child, done for it by the waiter of its worker (`waiter`).

The child says that it is idle, and is woken on its socket: to look by itself, or with a job that
was handed off. Until the child knows what became of the nonce that it gave away, a claim may have
been made under it: so it claims under that nonce, or releases it. When the waiter does not wait for
the child, because it is stuck or the engine is away, the child looks by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from time import monotonic
from typing import Final

from windlass.engine.contract import Batch, Engine
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.ipc.wake_socket import WakeReceiver

#: When the waiter has noted nothing for so many seconds, a child looks by itself.
UNATTENDED_S = 3.0


class Look(Enum):
    LOOK = 0


LOOK: Final = Look.LOOK


class IdleWait:
    """Used by the fetcher alone. `tell` says that the child is idle, with the nonce under which a put
    may claim for it, or "" for none; or None that it is not idle any more."""

    def __init__(
        self,
        engine: Engine,
        table: SlotTable,
        wakes: WakeReceiver,
        tell: Callable[[str | None], None],
    ) -> None:
        self._engine = engine
        self._table = table
        self._wakes = wakes
        self._tell = tell
        self._began_at = 0.0
        self.is_started = False
        self.nonce = ""  # under which a claim may have been made
        self.nudge = wakes.nudge

    def start(self, nonce: str) -> None:
        self.is_started, self.nonce = True, nonce
        self._began_at = monotonic()
        self._tell(nonce)

    def poll(self, timeout_s: float) -> Batch | Look | None:
        """A job that was handed off, or that there may be something; None on a nudge, or after
        the time."""
        message = self._wakes.receive(timeout_s)
        if message is None:
            return None if self.is_attended() else LOOK
        self.is_started = False  # the waiter waits for it no longer
        batch = self._engine.read_handoff(message, self.nonce) if message else None
        return LOOK if batch is None else batch

    def is_attended(self) -> bool:
        """Whether the waiter does its work."""
        now = monotonic()
        return now - max(self._began_at, self._table.waited_at()) < UNATTENDED_S

    def waited_at(self) -> float:
        """When the engine last answered the waiter."""
        return self._table.waited_at()

    def end(self) -> str:
        """The nonce that was given away; it is used, or released, next."""
        nonce, self.nonce = self.nonce, ""
        self.is_started = False
        return nonce

    def stop(self) -> None:
        """The child is not idle any more."""
        if self.is_started:
            self.is_started = False
            self._tell(None)
