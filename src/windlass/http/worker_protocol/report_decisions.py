"""From the reports of remote workers to outcomes of the engine, and back to verdicts.

1. A success stores its result as JSON, sealed as the call was. A result that cannot be stored makes
   a dead letter, as in a native worker.
2. A failure is decided by the retry policy of the job, its task or the app, by the same rules as in
   a native worker. Types of errors are compared by name: see `stand_in`.
3. A snooze beyond the limit makes a dead letter.
4. A report counts as the end of a run if the engine has applied it now (`_measure`). A repeat does
   not count: the instance that got the first verdict has counted it. A rejected report counts as
   stale.
5. The engine fences each outcome by its token. Reports on jobs that do not exist, on jobs outside
   of the queues of the caller, and with the token of another session are not sent to it.
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from windlass.context import Report
from windlass.core.durations import describe_ms, to_ms
from windlass.core.failures import FailureText
from windlass.core.retry import Decision, GiveUp, Retry
from windlass.core.serialization.codec import check_size, decode_json
from windlass.core.serialization.envelope import NO_OVERRIDES
from windlass.core.signals import Reject, RetryLater
from windlass.core.states import Reason
from windlass.engine.contract import (
    Buried,
    Outcome,
    Progressed,
    Released,
    Retried,
    Snoozed,
    Succeeded,
    Verdict,
)
from windlass.errors import DecodeError, PayloadTooLarge, TimedOut
from windlass.http.access import Principal
from windlass.http.worker_protocol.claim_facts import ClaimFacts, KnownClaims
from windlass.http.worker_protocol.messages import (
    ErrorReport,
    FailedReport,
    JobReport,
    ProgressReport,
    ReleasedReport,
    ReportVerdict,
    RetryReport,
    SnoozedReport,
    SucceededReport,
)
from windlass.http.worker_protocol.remote_sessions import RemoteSession
from windlass.worker.logs.events import LogEvent, log, log_dead_letter
from windlass.worker.maintenance.measures import WorkerMeasures
from windlass.worker.run.measures import POSITIONS, VERBS
from windlass.worker.run.rules import Rules, overridden, rules_of

if TYPE_CHECKING:
    from windlass.app import Windlass

_NULL: Final = b"null"


class RemoteFailure(Exception):
    """An error that a remote worker reported, for the `retry_if` of a policy. Never raised."""

    def __init__(self, text: FailureText) -> None:
        super().__init__(text.message)
        self.type = text.type
        self.message = text.message


class Reporter(msgspec.Struct, frozen=True):
    """The sender of reports."""

    session: RemoteSession
    principal: Principal


class DecidedReport(msgspec.Struct, frozen=True):
    """A report with its outcome: None if the session has no such claim. Without facts, there is no
    such job for the caller."""

    report: JobReport
    facts: ClaimFacts | None
    outcome: Outcome | None
    text: FailureText | None = None  # of a failure


class ReportDecisions:
    """Decides on reports. Used by many threads."""

    def __init__(self, app: Windlass, known: KnownClaims, measures: WorkerMeasures) -> None:
        self._app = app
        self._known = known
        self._measures = measures
        self._random = Random()

    def decide(self, reports: Sequence[JobReport], reporter: Reporter) -> list[DecidedReport]:
        """Decide on reports, without a change."""
        found = self._known.find([(report.id, report.token) for report in reports])
        return [self._admit(*pair, reporter) for pair in zip(reports, found, strict=True)]

    def conclude(
        self, decided: Sequence[DecidedReport], verdicts: Sequence[Verdict]
    ) -> tuple[ReportVerdict, ...]:
        """The verdicts on all reports, given those of the engine on the outcomes."""
        found = iter(verdicts)
        return tuple(
            _verdict_without(one.facts) if one.outcome is None else self._note(one, next(found))
            for one in decided
        )

    # --------------------------------------------------------------------------------- deciding

    def _admit(
        self, report: JobReport, facts: ClaimFacts | None, reporter: Reporter
    ) -> DecidedReport:
        if facts is None or not reporter.principal.may_use(facts.queue):
            return DecidedReport(report, None, None)
        if not reporter.session.has_made(report.token):
            return DecidedReport(report, facts, None)
        return self._decide(report, facts)

    def _decide(self, report: JobReport, facts: ClaimFacts) -> DecidedReport:
        match report:
            case SucceededReport():
                return self._succeed(report, facts)
            case FailedReport() | RetryReport():
                return self._fail(report, facts)
            case SnoozedReport():
                return self._snooze(report, facts)
            case ReleasedReport():
                started = report.started
                return DecidedReport(
                    report, facts, Released(id=report.id, token=report.token, started=started)
                )
            case ProgressReport():
                progress = msgspec.json.encode(Report(report.value, report.message))
                return DecidedReport(
                    report, facts, Progressed(id=report.id, token=report.token, progress=progress)
                )

    def _rules(self, facts: ClaimFacts) -> Rules:
        rules = rules_of(self._app.find_task(facts.task), self._app.settings)
        return rules if facts.options == NO_OVERRIDES else overridden(rules, facts.options)

    def _succeed(self, report: SucceededReport, facts: ClaimFacts) -> DecidedReport:
        ttl_ms = self._rules(facts).result_ttl_ms
        result = None
        if ttl_ms:
            try:
                result = self._pack_result(report, facts)
            except (DecodeError, PayloadTooLarge) as error:
                return self._bury(report, facts, Reason.BAD_RESULT, FailureText.of(error))
        outcome = Succeeded(id=report.id, token=report.token, result=result, result_ttl_ms=ttl_ms)
        return DecidedReport(report, facts, outcome)

    def _pack_result(self, report: SucceededReport, facts: ClaimFacts) -> bytes:
        result = _NULL if report.result is msgspec.UNSET else bytes(report.result)
        decode_json(result)  # raises for text that is not UTF-8, and for deep nesting
        packed = self._app.packing.pack_result(
            "json", msgspec.json.format(result, indent=-1), facts.task, report.id, facts.sealed
        )
        check_size(packed, self._app.settings.max_payload, f"The result of {facts.task}")
        return packed

    def _fail(self, report: FailedReport | RetryReport, facts: ClaimFacts) -> DecidedReport:
        text = _text_of(report.error)
        policy = self._rules(facts).policy
        error: BaseException = stand_in(text, policy)
        is_timeout = isinstance(error, TimedOut)
        if isinstance(report, RetryReport):
            error = RetryLater(report.delay_s, text.message)
        elif report.rejected:
            error = Reject(text.message)
        decision = self._ask_policy(policy, error, facts.attempt)
        if isinstance(decision, GiveUp):
            reason = Reason.TIMED_OUT if is_timeout else decision.reason
            return self._bury(report, facts, reason, text)
        packed = self._pack_failure(text, facts, report.id)
        outcome = Retried(
            id=report.id, token=report.token, delay_ms=decision.delay_ms, error=packed
        )
        return DecidedReport(report, facts, outcome, text)

    def _ask_policy(self, policy: Retry, error: BaseException, attempt: int) -> Decision:
        try:
            return policy.decide(error, attempt, self._random)
        except BaseException:  # noqa: BLE001  # a predicate of the user may raise anything
            return policy.decide(error, attempt, self._random, ask=False)

    def _snooze(self, report: SnoozedReport, facts: ClaimFacts) -> DecidedReport:
        most = self._app.settings.max_snoozes
        if facts.snoozes >= most:
            message = f"snoozed once more after {facts.snoozes} times, and no more are allowed"
            return self._bury(report, facts, Reason.SNOOZED_OUT, FailureText(message=message))
        delay_ms = to_ms(report.delay_s, name="delay_s")
        return DecidedReport(
            report, facts, Snoozed(id=report.id, token=report.token, delay_ms=delay_ms)
        )

    def _bury(
        self, report: JobReport, facts: ClaimFacts, reason: Reason, text: FailureText
    ) -> DecidedReport:
        error = self._pack_failure(text, facts, report.id)
        packing = self._app.packing
        outcome = Buried(
            id=report.id,
            token=report.token,
            reason=reason,
            error=error,
            fingerprint=packing.failure_fingerprint(text, facts.task, facts.sealed),
        )
        return DecidedReport(report, facts, outcome, text)

    def _pack_failure(self, text: FailureText, facts: ClaimFacts, id: str) -> bytes:
        return self._app.packing.pack_failure(text, facts.task, id, facts.sealed)

    # --------------------------------------------------------------------------------- verdicts

    def _note(self, one: DecidedReport, verdict: Verdict) -> ReportVerdict:
        outcome = one.outcome
        self._measure(one, verdict)
        is_accepted = verdict is not Verdict.STALE
        if is_accepted and one.facts is not None and one.text is not None:
            if isinstance(outcome, Buried):
                log_dead_letter(outcome.id, one.facts.task, outcome.reason, one.text)
            elif isinstance(outcome, Retried):
                self._log_retry(outcome, one.facts, one.text)
        return ReportVerdict.OK if is_accepted else ReportVerdict.STALE

    def _measure(self, one: DecidedReport, verdict: Verdict) -> None:
        """Count the end of a run that the engine has applied now, and forget its claim."""
        outcome, facts = one.outcome, one.facts
        if outcome is None or facts is None:
            return
        kind = type(outcome)
        if verdict is Verdict.STALE:
            self._measures.add((), {VERBS[kind]: 1})
        if kind is Progressed:
            return
        self._known.forget(outcome.id, outcome.token)
        if verdict is not Verdict.OK:
            return
        if isinstance(outcome, Released) and not outcome.started:
            return  # it has no run
        run_s = max(0.0, time.monotonic() - facts.claimed_at)
        self._measures.add_run(facts.queue, facts.task, POSITIONS[kind], facts.wait_s, run_s)

    def _log_retry(self, outcome: Retried, facts: ClaimFacts, text: FailureText) -> None:
        log.warning(
            LogEvent.JOB_FAILED,
            outcome.id,
            facts.task,
            facts.attempt,
            self._rules(facts).policy.max_attempts,
            text.name,
            describe_ms(outcome.delay_ms),
        )


def _verdict_without(facts: ClaimFacts | None) -> ReportVerdict:
    """The verdict on a report that was not sent to the engine."""
    return ReportVerdict.UNKNOWN if facts is None else ReportVerdict.STALE


def _text_of(error: ErrorReport) -> FailureText:
    return FailureText.reported(error.type, error.message, error.traceback)


def stand_in(text: FailureText, policy: Retry) -> BaseException:
    """An exception of the class that the reported type names, for the rules of a policy: a class of
    the policy, a built-in one, or windlass's `TimedOut`. The class is named in full, or by its last
    part. An error of another name is only an error."""
    named: tuple[type[BaseException], ...] = (TimedOut, *policy.reject_on, *policy.retry_on)
    for kind in named:
        if text.type in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}"):
            return _made(kind, text)
    known = getattr(builtins, text.type, None)
    if isinstance(known, type) and issubclass(known, Exception):
        return _made(known, text)
    return RemoteFailure(text)


def _made(kind: type[BaseException], text: FailureText) -> BaseException:
    """An instance of a class, made without its `__init__`, which may need more than a message."""
    try:
        return kind.__new__(kind, text.message)
    except Exception:  # noqa: BLE001  # a class of the user may raise anything
        return RemoteFailure(text)
