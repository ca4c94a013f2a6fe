"""Release claims of calls with an unknown reply, and report outcomes that failed as a batch.

During an outage nothing is lost: a later heartbeat releases the claims, or the supervisor does when
it closes the session. A result that the engine can never store makes its job a dead letter, like a
result that is larger than `max_payload`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from logging import getLogger
from operator import attrgetter
from time import monotonic

from windlass.core.failures import FailureText
from windlass.core.quantities import Count
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
from windlass.worker.fetch.round_trip import RoundTrip

log = getLogger("windlass.worker")

#: How long a process that hands back its jobs may report outcomes, in seconds. The supervisor kills
#: it after 5 s.
LEAVE_S = 3.0


class Releaser:
    """Used by the fetcher only."""

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

    def give_back(self, call: RoundTrip) -> None:
        """Release the claims of a call. If that fails too, a later heartbeat releases them."""
        self._nonces.forget(call.nonce)
        try:
            self._engine.release(call.session, call.nonce)
        except EngineError as error:
            self._note_away(error)
        except Exception:
            # Without the nonce: a reader of the log could end these jobs with it.
            log.exception("could not release claims of session %s", call.session)

    def leave(self, call: RoundTrip) -> None:
        """Release the claims of a call at the end of this process."""
        try:
            self._engine.release(call.session, call.nonce)
        except EngineError as error:
            _log_left(error)
        else:
            self._nonces.forget(call.nonce)

    def leave_all(
        self,
        outcomes: list[Outcome],
        running: list[Claim],
        calls: Iterable[RoundTrip],
        ends_at: float,
    ) -> None:
        """Report outcomes until `ends_at`, hand back running jobs, and release claims."""
        released: list[Outcome] = [
            Released(id=job.id, token=job.token, started=True) for job in running
        ]
        # The smallest first: so the time is enough for as many as possible.
        left = deque(batches(sorted(outcomes + released, key=_precedence), attrgetter("size")))
        try:
            while left and monotonic() < ends_at:
                self._finish(left[0])
                left.popleft()
            for call in calls:
                self._engine.release(call.session, call.nonce)
            log.info("handed back %s", Count(len(running), "running job"))
        except EngineError as error:
            _log_left(error)
        if left:
            _log_unreported([outcome for batch in left for outcome in batch])

    def _finish(self, outcomes: Sequence[Outcome]) -> None:
        try:
            self._engine.finish(outcomes)
        except PayloadTooLarge:
            self.report_each(outcomes)

    def report_each(
        self, outcomes: Iterable[Outcome]
    ) -> tuple[Sequence[Outcome], Sequence[Verdict]]:
        """Report outcomes one by one, so that one too large to store does not block the others.
        Return the outcomes as reported, and their verdicts."""
        reported: list[Outcome] = []
        verdicts: list[Verdict] = []
        for outcome in outcomes:
            try:
                verdicts += self._engine.finish([outcome])
                reported.append(outcome)
            except PayloadTooLarge as error:
                if isinstance(outcome, Progressed):
                    continue  # the job still runs, and may report smaller progress
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
        """Report outcomes one by one, so that an error of one does not block the others."""
        for outcome in outcomes:
            try:
                self._finish([outcome])
            except EngineError:
                self._mailbox.outcomes.append(outcome)
            except Exception:
                log.exception("cannot report the result of job %s, dropping it", outcome.id)
                self._nonces.drop(outcome.token)
            else:
                self._nonces.end([outcome])


def _precedence(outcome: Outcome) -> int:
    """Sort by size, with progress first: it must come before the end of its job."""
    return -1 if isinstance(outcome, Progressed) else outcome.size


def _too_large(outcome: Outcome, error: PayloadTooLarge) -> Buried:
    return Buried(
        id=outcome.id,
        token=outcome.token,
        reason=Reason.BAD_RESULT,
        error=FailureText.of(error).pack(),
    )


def _log_unreported(outcomes: Sequence[Outcome]) -> None:
    ends = [outcome.id for outcome in outcomes if not isinstance(outcome, Progressed)]
    log.warning(
        "could not report %s before shutdown, these jobs run again: %s",
        Count(len(ends), "result"),
        ", ".join(ends[:10]),
    )


def _log_left(error: EngineError) -> None:
    log.warning("cannot hand back jobs, leaving them to the supervisor: %s", error)
