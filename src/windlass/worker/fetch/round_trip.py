"""One round trip of the fetcher, and the calls around it.

`Backoff` is the wait between repeats. `Adoption` comes before a claim. `Releaser` logs outages,
releases claims of calls with an unknown reply, and reports outcomes that failed as a batch. An
outage loses nothing: a later heartbeat releases the claims, or the supervisor does when it closes
the session. A result that the engine can never store makes its job a dead letter, like a result
that is larger than `max_payload`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from logging import getLogger
from operator import attrgetter
from random import uniform
from time import monotonic

import msgspec

from windlass.core.failures import FailureText
from windlass.core.quantities import Count
from windlass.core.states import Reason
from windlass.engine.contract import (
    BITE,
    Buried,
    Engine,
    Outcome,
    Plan,
    Progressed,
    Verdict,
    batches,
)
from windlass.errors import EngineError, EngineUnavailable, PayloadTooLarge
from windlass.worker.fetch.mailbox import Mailbox
from windlass.worker.fetch.nonces import Nonces
from windlass.worker.logs.events import LogEvent
from windlass.worker.run.measures import RunMeasures, is_stored

log = getLogger("windlass.worker")

#: How long until the next adoption, in seconds: after an adoption that found jobs, and otherwise.
SOON_S = 1.0
LATER_S = 5.0

#: How long a process that hands back its jobs may report outcomes, in seconds. The supervisor kills
#: it after 5 s.
LEAVE_S = 3.0


class RoundTrip(msgspec.Struct, frozen=True):
    """One round trip: outcomes to report, and a claim. With `room` 0 there is no claim and no
    nonce."""

    session: str
    outcomes: list[Outcome]
    nonce: str = ""
    room: int = 0
    plan: Plan = Plan()
    is_last: bool = False  # the nonce was given to the waiter


class Backoff:
    """Exponential back-off with a cap. Random jitter of up to a half keeps callers that failed
    together from retrying together."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._failures = 0

    def next_s(self) -> float:
        longest = min(self._most_s, self._first_s * (1 << min(self._failures, 30)))
        self._failures += 1
        return longest * uniform(0.5, 1)

    def reset(self) -> None:
        self._failures = 0


class Adoption:
    """Make jobs ready again that other workers put aside because they do not know the task.

    During a deploy, old and new workers serve the same queues. An adopted job becomes ready for all
    workers, so the fetcher adopts right before a claim: then a worker that knows the task claims
    first. Tasks with calls for another version of the function are left to other workers. Used by
    the fetcher only, except for `leave`."""

    def __init__(self, engine: Engine, tasks: Collection[str]) -> None:
        self._engine = engine
        self._tasks = tasks
        self._left: set[str] = set()
        self._due = 0.0

    def leave(self, task: str) -> None:
        """Stop adopting jobs of a task, because its calls are for another version. Thread-safe."""
        self._left.add(task)

    def ask(self) -> None:
        """Adopt jobs of our tasks, if an adoption is due. After a full batch the next is due at
        once."""
        if monotonic() < self._due:
            return
        self._due = monotonic() + LATER_S  # also when the call fails
        adopted = self._engine.adopt([task for task in self._tasks if task not in self._left])
        if adopted:
            self._due = monotonic() + (0.0 if adopted >= BITE else SOON_S)


class Releaser:
    """Release claims and report outcomes after errors. Used by the fetcher only."""

    def __init__(
        self,
        engine: Engine,
        nonces: Nonces,
        mailbox: Mailbox,
        measures: RunMeasures,
    ) -> None:
        self._engine = engine
        self._nonces = nonces
        self._mailbox = mailbox
        self._measures = measures
        self.is_away = False

    def note_away(self, error: EngineError) -> None:
        if not self.is_away and isinstance(error, EngineUnavailable):
            log.warning(LogEvent.ENGINE_AWAY, error)
        elif not self.is_away:
            log.error(LogEvent.ENGINE_REFUSED, error)
        self.is_away = True

    def note_back(self) -> None:
        if self.is_away:
            log.warning(LogEvent.ENGINE_BACK, self._engine.location)
        self.is_away = False

    def give_back(self, call: RoundTrip) -> None:
        """Release the claims of a call. If the release fails, a later heartbeat releases them."""
        self._nonces.forget(call.nonce)
        try:
            self._engine.release(call.session, call.nonce)
        except EngineError as error:
            self.note_away(error)
        except Exception:
            # The line omits the nonce: a reader of the log could end these jobs with it.
            log.exception(LogEvent.CLAIMS_NOT_GIVEN_BACK, call.session)

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
        running: list[Outcome],
        calls: Iterable[RoundTrip],
        ends_at: float,
    ) -> None:
        """Report outcomes, also those that hand back `running` jobs, until `ends_at`; then release
        claims."""
        # Send the smallest outcomes first, to report as many as possible in time.
        left = deque(batches(sorted(outcomes + running, key=_precedence), attrgetter("size")))
        try:
            while left and monotonic() < ends_at:
                self._finish(left[0])
                left.popleft()
            for call in calls:
                self._engine.release(call.session, call.nonce)
            log.info(LogEvent.JOBS_HANDED_BACK, Count(len(running), "running job"))
        except EngineError as error:
            _log_left(error)
        if left:
            _log_unreported([outcome for batch in left for outcome in batch])

    def _finish(self, outcomes: Sequence[Outcome]) -> None:
        try:
            verdicts: Sequence[Verdict] = self._engine.finish(outcomes)
        except PayloadTooLarge:
            outcomes, verdicts = self.report_each(outcomes)
        self.settle(outcomes, verdicts)

    def settle(self, outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> None:
        """Count the runs of outcomes that the engine has answered."""
        if verdicts.count(Verdict.OK) < len(verdicts):
            self._measures.forget(self._find_ended_by_force(outcomes, verdicts))
        self._measures.settle(outcomes, verdicts)

    def _find_ended_by_force(
        self, outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]
    ) -> list[Outcome]:
        """Return outcomes that the engine knows from the supervisor, which counts their runs. It
        ends runs by force as dead letters only; retries wait for the end of this process. If the
        engine does not tell, no run is counted: one too few is better than one too many."""
        repeated: list[Outcome] = [
            outcome
            for outcome, verdict in zip(outcomes, verdicts, strict=True)
            if verdict is Verdict.REPEATED and isinstance(outcome, Buried)
        ]
        if not repeated:
            return []
        try:
            records = self._engine.get([outcome.id for outcome in repeated])
        except EngineError:
            return repeated
        pairs = zip(repeated, records, strict=True)
        return [outcome for outcome, record in pairs if not is_stored(outcome, record)]

    def report_each(
        self, outcomes: Iterable[Outcome]
    ) -> tuple[Sequence[Outcome], Sequence[Verdict]]:
        """Report outcomes one by one, so that an outcome too large to store does not block the
        others. Return the outcomes as reported, and their verdicts. After an error, a repeat of the
        call finds all outcomes as they were: only the end replaces the runs of those too large."""
        reported: list[Outcome] = []
        verdicts: list[Verdict] = []
        replaced: list[tuple[Outcome, Outcome]] = []
        for outcome in outcomes:
            try:
                verdicts += self._engine.finish([outcome])
                reported.append(outcome)
            except PayloadTooLarge as error:
                if isinstance(outcome, Progressed):
                    continue  # the job still runs, and may report smaller progress
                text = FailureText.of(error)
                buried = Buried(
                    id=outcome.id,
                    token=outcome.token,
                    reason=Reason.BAD_RESULT,
                    error=text.pack(),
                    fingerprint=text.fingerprint,
                )
                verdicts += self._engine.finish([buried])
                replaced.append((outcome, buried))
                reported.append(buried)
                log.error(LogEvent.RESULT_TOO_LARGE, outcome.id, error)
        for outcome, by in replaced:
            self._measures.replace(outcome, by)
        return reported, verdicts

    def report_one_by_one(self, outcomes: Iterable[Outcome]) -> None:
        """Report outcomes one by one, so that an error in one report does not block the others."""
        for outcome in outcomes:
            try:
                self._finish([outcome])
            except EngineError:
                self._mailbox.outcomes.append(outcome)
            except Exception:
                log.exception(LogEvent.OUTCOME_LOST, outcome.id)
                self._nonces.drop(outcome.token)
                self._measures.forget([outcome])
            else:
                self._nonces.end([outcome])


def log_refused(outcomes: Iterable[Outcome], verdicts: Sequence[Verdict]) -> None:
    """Log outcomes that the engine rejected."""
    if verdicts.count(Verdict.OK) == len(verdicts):
        return
    stale = [
        outcome.id
        for outcome, verdict in zip(outcomes, verdicts, strict=True)
        if verdict is Verdict.STALE and not isinstance(outcome, Progressed)
    ]
    if stale:
        number = Count(len(stale), "stale result")
        log.warning(LogEvent.OUTCOMES_REFUSED, number, ", ".join(stale[:10]))


def _precedence(outcome: Outcome) -> int:
    """Return a sort key: progress first, because it must precede the end of its job, then by
    size."""
    return -1 if isinstance(outcome, Progressed) else outcome.size


def _log_unreported(outcomes: Sequence[Outcome]) -> None:
    ends = [outcome.id for outcome in outcomes if not isinstance(outcome, Progressed)]
    log.warning(LogEvent.OUTCOMES_UNREPORTED, Count(len(ends), "result"), ", ".join(ends[:10]))


def _log_left(error: EngineError) -> None:
    log.warning(LogEvent.JOBS_LEFT_TO_SUPERVISOR, error)
