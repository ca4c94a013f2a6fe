"""The wait of an idle child, which the waiter of its worker does for it (`supervisor/waiter`).

The child reports that it is idle. The waiter wakes it on its socket: to claim by itself, or with a
job that was handed off. A put may claim under the nonce that the child gave to the waiter, so the
child uses that nonce for its next claim, or releases it. When the waiter is stuck or the engine is
away, the child claims by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from time import monotonic
from typing import Final

from windlass.engine.contract import Batch, Engine
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.ipc.wake_socket import WakeReceiver

#: When the waiter has noted nothing for this many seconds, a child claims by itself.
UNATTENDED_S = 3.0


class IdleLook(Enum):
    LOOK = 0


LOOK: Final = IdleLook.LOOK


class IdleWait:
    """Used by the fetcher only. `report` informs the supervisor: a nonce under which a put may
    claim for this idle child, "" for an idle child without hand-offs, None for a busy child."""

    def __init__(
        self,
        engine: Engine,
        table: SlotTable,
        wakes: WakeReceiver,
        report: Callable[[str | None], None],
    ) -> None:
        self._engine = engine
        self._table = table
        self._wakes = wakes
        self._report = report
        self._began_at = 0.0
        self.is_started = False
        self.nonce = ""  # under which a claim may have been made
        self.nudge = wakes.nudge

    def start(self, nonce: str) -> None:
        self.is_started, self.nonce = True, nonce
        self._began_at = monotonic()
        self._report(nonce)

    def poll(self, timeout_s: float) -> Batch | IdleLook | None:
        """Return a job that was handed off, or LOOK to claim; None on a nudge, or after the
        timeout."""
        message = self._wakes.receive(timeout_s)
        if message is None:
            return None if self.is_attended() else LOOK
        self.is_started = False  # the waiter no longer waits for this child
        batch = self._engine.read_handoff(message, self.nonce) if message else None
        return LOOK if batch is None else batch

    def is_attended(self) -> bool:
        """Whether the waiter waits for this child."""
        now = monotonic()
        return now - max(self._began_at, self._table.waited_at()) < UNATTENDED_S

    def waited_at(self) -> float:
        """When the engine last answered the waiter."""
        return self._table.waited_at()

    def end(self) -> str:
        """Take back the nonce that the waiter has. The caller claims under it, or releases it."""
        nonce, self.nonce = self.nonce, ""
        self.is_started = False
        return nonce

    def stop(self) -> None:
        """Report that the child is busy."""
        if self.is_started:
            self.is_started = False
            self._report(None)
