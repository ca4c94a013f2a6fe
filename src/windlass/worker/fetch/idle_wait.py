"""The wait of an idle child. The waiter of the worker (`supervisor/waiter`) waits on its behalf.

The child reports that it is idle. The waiter wakes the child on its socket: to claim by itself, or
with a job that was handed off. A put may claim under the nonce that the child gave to the waiter,
so the child uses that nonce for its next claim, or releases it. When the waiter is stuck or the
engine is away, the child claims by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

from windlass.engine.contract import Batch, Capability, Engine
from windlass.worker.fetch.nonces import Nonces
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.ipc.wake_socket import WakeReceiver

#: A child claims by itself when the waiter has not waited for it for this many seconds.
UNATTENDED_S = 3.0

_LOOK: Final = Batch()


class IdleWait:
    """The wait of one idle child. Used by the fetcher only. `report` informs the supervisor: a
    nonce for an idle child that accepts hand-offs, "" for an idle child without hand-offs, None for
    a busy child."""

    def __init__(
        self,
        engine: Engine,
        table: SlotTable,
        nonces: Nonces,
        wakes: WakeReceiver,
        report: Callable[[str | None], None],
    ) -> None:
        self._engine = engine
        self._table = table
        self._nonces = nonces
        self._wakes = wakes
        self._report = report
        self._is_handed_jobs = Capability.HANDOFF in engine.capabilities
        self._began_at = 0.0
        self.is_started = False
        self.nonce = ""  # a put may have claimed under this nonce
        self.nudge = wakes.nudge

    def start(self, *, is_free: bool) -> None:
        """Report that the child is idle, unless the waiter knows already. Only a child without jobs
        accepts hand-offs, because a running job may block the whole process."""
        is_handed_jobs = is_free and self._is_handed_jobs
        if self.is_started and (self.nonce or not is_handed_jobs):
            return
        if is_handed_jobs and not self.nonce:
            self.nonce = self._nonces.announce()
        self.is_started = True
        self._began_at = monotonic()
        self._report(self.nonce)

    def poll(self, timeout_s: float) -> Batch | None:
        """Wait for a wake-up. Return a job that was handed off, an empty batch if the child should
        claim, or None on a nudge or after the timeout."""
        message = self._wakes.receive(timeout_s)
        if message is None:
            last_seen_at = max(self._began_at, self._table.waited_at())
            return None if monotonic() - last_seen_at < UNATTENDED_S else _LOOK
        self.is_started = False  # the waiter no longer waits for this child
        return (self._engine.read_handoff(message, self.nonce) if message else None) or _LOOK

    def take_nonce(self) -> str:
        """End the wait, and return the nonce of the waiter. The caller claims under that nonce, or
        releases it."""
        nonce, self.nonce = self.nonce, ""
        self.is_started = False
        return nonce

    def stop(self) -> None:
        """Report that the child is busy."""
        if self.is_started:
            self.is_started = False
            self._report(None)
