"""Giving back what a call of the fetcher may have claimed, and reporting what it could not.

An engine that is away is no trouble: what cannot be given back here goes back with its session, by
a later beat or by the supervisor. A result that the engine can never store ends its job as dead, as
one does that is larger than `max_payload`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from logging import getLogger
from operator import attrgetter
from time import monotonic

from windlass.core.failures import FailureText
from windlass.core.plurals import Count
from windlass.core.states import Reason
from windlass.engine.contract import (
    Buried,
    Claim,
    Engine,
    Outcome,
    Progressed,
    Released,
    Verdict,
    batches,
)
from windlass.errors import EngineError, PayloadTooLarge
from windlass.worker.fetch.mailbox import Mailbox
from windlass.worker.fetch.nonces import Nonces
from windlass.worker.fetch.round_trip import Call

log = getLogger("windlass.worker")

#: So long after it was told to hand back its jobs, in seconds, a process begins to report what is
#: left. After 5 s it is killed.
LEAVE_S = 3.0


class Releaser:
    """Used by the fetcher alone."""

    def __init__(
        self,
        engine: Engine,
        nonces: Nonces,
        mailbox: Mailbox,
        note_away: Callable[[EngineError], None],
    ) -> None:
        self._engine = engine
        self._nonces = nonces
        self._mailbox = mailbox
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
        self,
        outcomes: list[Outcome],
        running: list[Claim],
        calls: Iterable[Call],
        ends_at: float,
    ) -> None:
        """The same with all else that is in hand, as far as it can be reported by then."""
        released: list[Outcome] = [
            Released(id=job.id, token=job.token, started=True) for job in running
        ]
        # The smallest first, so that as many as possible are reported in the time that is left.
        left = deque(batches(sorted(outcomes + released, key=_precedence), attrgetter("size")))
        try:
            while left and monotonic() < ends_at:
                self._finish(left[0])
                left.popleft()
            for call in calls:
                self._engine.release(call.session, call.nonce)
            log.info("handed back %s", Count(len(running), "running job"))
        except EngineError as error:
            _tell_left(error)
        if left:
            _tell_unreported([outcome for batch in left for outcome in batch])

    def _finish(self, outcomes: Sequence[Outcome]) -> None:
        try:
            self._engine.finish(outcomes)
        except PayloadTooLarge:
            self.report_each(outcomes)

    def report_each(
        self, outcomes: Iterable[Outcome]
    ) -> tuple[Sequence[Outcome], Sequence[Verdict]]:
        """Report outcomes one by one, so that one which can never be stored does not hold up the
        others; what was reported in the end, and the verdicts on it."""
        reported: list[Outcome] = []
        verdicts: list[Verdict] = []
        for outcome in outcomes:
            try:
                verdicts += self._engine.finish([outcome])
                reported.append(outcome)
            except PayloadTooLarge as error:
                if isinstance(outcome, Progressed):
                    continue  # the job goes on, and may tell of less
                buried = _too_large(outcome, error)
                verdicts += self._engine.finish([buried])
                reported.append(buried)
                log.error(
                    "the result of job %s is too large for the engine, the job is dead: %s",
                    outcome.id,
                    error,
                )
        return reported, verdicts

    def report_one_by_one(self, outcomes: Iterable[Outcome]) -> None:
        """So that one bad outcome does not hold up the others."""
        for outcome in outcomes:
            try:
                self._finish([outcome])
            except EngineError:
                self._mailbox.outcomes.append(outcome)
            except Exception:
                log.exception("the outcome of job %s cannot be reported and is dropped", outcome.id)
                self._nonces.drop(outcome.token)
            else:
                self._nonces.end([outcome])


def _precedence(outcome: Outcome) -> int:
    """Progress comes before the end of its job, whatever its size."""
    return -1 if isinstance(outcome, Progressed) else outcome.size


def _too_large(outcome: Outcome, error: PayloadTooLarge) -> Buried:
    return Buried(
        id=outcome.id,
        token=outcome.token,
        reason=Reason.BAD_RESULT,
        error=FailureText.of(error).pack(),
    )


def _tell_unreported(outcomes: Sequence[Outcome]) -> None:
    ends = [outcome.id for outcome in outcomes if not isinstance(outcome, Progressed)]
    log.warning(
        "could not report %s before the end, these jobs run again: %s",
        Count(len(ends), "outcome"),
        ", ".join(ends[:10]),
    )


def _tell_left(error: EngineError) -> None:
    log.warning("what is in hand is left to the supervisor to give back: %s", error)
