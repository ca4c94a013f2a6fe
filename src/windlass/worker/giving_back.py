"""Giving back what a call of the pump may have claimed, and reporting what it could not.

An engine that is away is no trouble: what cannot be given back here goes back with its session, by
a later beat or by the supervisor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from logging import getLogger

from windlass.core.counting import Count
from windlass.engine.contract import Claim, Engine, Outcome, Released
from windlass.errors import EngineError
from windlass.worker.calls import Call
from windlass.worker.inbox import Inbox
from windlass.worker.nonces import Nonces

log = getLogger("windlass.worker")


class GivingBack:
    """Used by the pump alone."""

    def __init__(
        self,
        engine: Engine,
        nonces: Nonces,
        inbox: Inbox,
        note_away: Callable[[EngineError], None],
    ) -> None:
        self._engine = engine
        self._nonces = nonces
        self._inbox = inbox
        self._note_away = note_away

    def give_back(self, call: Call) -> None:
        """What a call may have claimed. If this fails too, a later beat gives it back."""
        self._nonces.forget(call.nonce)
        try:
            self._engine.release(call.session, call.nonce)
        except EngineError as error:
            self._note_away(error)
        except Exception:
            # Without the nonce: whoever knows it could end these jobs.
            log.exception("claims of session %s could not be given back", call.session)

    def leave(self, call: Call) -> None:
        """What a call may have claimed, at the end of this process."""
        try:
            self._engine.release(call.session, call.nonce)
        except EngineError as error:
            _tell_left(error)
        else:
            self._nonces.forget(call.nonce)

    def leave_all(
        self, outcomes: list[Outcome], running: list[Claim], calls: Iterable[Call]
    ) -> None:
        """The same with all else that is in hand."""
        outcomes = outcomes + [
            Released(id=job.id, token=job.token, started=True) for job in running
        ]
        try:
            if outcomes:
                self._engine.finish(outcomes)
            for call in calls:
                self._engine.release(call.session, call.nonce)
            log.info("handed back %s", Count(len(running), "running job"))
        except EngineError as error:
            _tell_left(error)

    def report_one_by_one(self, outcomes: Iterable[Outcome]) -> None:
        """So that one bad outcome does not hold up the others."""
        for outcome in outcomes:
            try:
                self._engine.finish([outcome])
            except EngineError:
                self._inbox.outcomes.append(outcome)
            except Exception:
                log.exception("the outcome of job %s cannot be reported and is dropped", outcome.id)
                self._nonces.drop(outcome.token)
            else:
                self._nonces.end([outcome])


def _tell_left(error: EngineError) -> None:
    log.warning("what is in hand is left to the supervisor to give back: %s", error)
