"""The wait of an idle child, which the waiter of its worker does for it (`supervisor/waiter`).

The child reports that it is idle. The waiter wakes it on its socket: to claim by itself, or with a
job that was handed off. A put may claim under the nonce that the child gave to the waiter, so the
child uses that nonce for its next claim, or releases it. When the waiter is stuck or the engine is
away, the child claims by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

from windlass.engine.contract import Batch, Capability, Engine
from windlass.worker.fetch.nonces import Nonces
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.ipc.wake_socket import WakeReceiver

#: When the waiter has noted nothing for this many seconds, a child claims by itself.
UNATTENDED_S = 3.0

_LOOK: Final = Batch()


class IdleWait:
    """Used by the fetcher only. `report` informs the supervisor: a nonce under which a put may
    claim for this idle child, "" for an idle child without hand-offs, None for a busy child."""

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
        self.nonce = ""  # under which a claim may have been made
        self.nudge = wakes.nudge

    def start(self, *, is_free: bool) -> None:
        """Report an idle child, unless that is known. A job that runs, or is about to, may block
        the whole process: so only a free child accepts hand-offs."""
        is_handed_jobs = is_free and self._is_handed_jobs
        if self.is_started and (self.nonce or not is_handed_jobs):
            return
        if is_handed_jobs and not self.nonce:
            self.nonce = self._nonces.announce()
        self.is_started = True
        self._began_at = monotonic()
        self._report(self.nonce)

    def poll(self, timeout_s: float) -> Batch | None:
        """Return a job that was handed off, or an empty batch to claim; None on a nudge, or after
        the timeout."""
        message = self._wakes.receive(timeout_s)
        if message is None:
            last_seen_at = max(self._began_at, self._table.waited_at())
            return None if monotonic() - last_seen_at < UNATTENDED_S else _LOOK
        self.is_started = False  # the waiter no longer waits for this child
        return (self._engine.read_handoff(message, self.nonce) if message else None) or _LOOK

    def take_nonce(self) -> str:
        """End the wait, and take back the nonce that the waiter has. The caller claims under it, or
        releases it."""
        nonce, self.nonce = self.nonce, ""
        self.is_started = False
        return nonce

    def stop(self) -> None:
        """Report that the child is busy."""
        if self.is_started:
            self.is_started = False
            self._report(None)
