"""A claim that waits in the engine, which makes it as soon as there is something to claim.

Meanwhile outcomes are reported by other calls, and nothing else is claimed. Until its reply is
known the claim may have been made: so it is asked for again, or repeated under its nonce by a call
that does not wait, or given back.
"""

from __future__ import annotations

from time import monotonic

from windlass.engine.contract import Batch, Engine, Outcome
from windlass.errors import EngineError
from windlass.worker.calls import Call

#: It asks for no more: whoever is stopped, or kept by a job, while it waits must not get many.
ROOM = 1


class Awaiting:
    """At most one claim at a time. Used by the pump, or in its place."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._call: Call | None = None
        self._until = 0.0
        self.began_at = 0.0

    def __bool__(self) -> bool:
        return self._call is not None

    @property
    def call(self) -> Call:
        assert self._call is not None
        return self._call

    @property
    def nonce(self) -> str:
        """Of the claim; empty without one."""
        return "" if self._call is None else self._call.nonce

    def begin(self, call: Call, seconds: float) -> None:
        """Let a claim wait, for so long."""
        self.began_at = monotonic()
        self._call, self._until = call, self.began_at + seconds

    def left_s(self) -> float:
        return self._until - monotonic()

    def ask(self, timeout_s: float) -> Batch | None:
        """What it got; None while it waits. After an error its time is over."""
        call = self.call
        try:
            return self._engine.await_claim(
                call.session, call.nonce, call.plan, call.room, round(timeout_s * 1000)
            )
        except EngineError:
            self.cut_short()
            raise

    def cut_short(self) -> None:
        """Its time is over."""
        self._until = 0.0

    def end(self, outcomes: list[Outcome] | None = None) -> Call:
        """It waits no longer: the call that repeats it, with these outcomes."""
        call, self._call = self.call, None
        return Call(call.session, outcomes or [], call.nonce, call.room, call.plan)
