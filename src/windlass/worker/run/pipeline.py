"""The pipeline that turns one claim into an outcome.

1. Open the envelope. A damaged envelope makes a dead letter; a newer format is left to newer
   workers.
2. Choose the retry policy and the time-out: those of the job, else of the task, else of the app.
3. Check the budgets: a job with nothing left becomes a dead letter, and its code does not run.
4. Build the context.
5. Decode the arguments by the current annotations of the function. Bytes that do not decode, and
   values that raise `TypeError` or `ValueError`, make a dead letter: the same bytes would fail
   again. Any other error is a failed attempt: a lost connection may come back.
6. Call the function inside the middleware. Any error of either is a failure of this job only.
7. Encode the result, unless the job keeps none.
8. Decide on a failure: snooze, retry, or give up. A run that was interrupted has timed out, or was
   cancelled.

Steps 1 to 5 are `prepare`; the others are `run`, and `run_async` for coroutines. Most steps run
code of the user (rebuilt types, predicates, `__str__`), which may raise anything, even a
`BaseException`. Every claim still ends in an outcome: the runners catch errors that escape, and
`conclude_escape` decides on them.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from logging import getLogger
from random import Random
from typing import Any

import msgspec

from windlass.client.payloads import PLAIN, Packing
from windlass.context import Context, running
from windlass.core.durations import describe_ms
from windlass.core.failures import FailureText, clear_frames
from windlass.core.foreign_words import explain_raise
from windlass.core.queues.labels import queue_of
from windlass.core.retry import GiveUp, Retry
from windlass.core.serialization.codec import check_size
from windlass.core.serialization.envelope import NO_OVERRIDES
from windlass.core.signals import Interrupted, Interruption, Snooze
from windlass.core.states import Reason, is_mismatched_for_good
from windlass.engine.contract import (
    Buried,
    Claim,
    Outcome,
    Released,
    Retried,
    Snoozed,
    StepVerbs,
    Succeeded,
    Unroutable,
)
from windlass.errors import (
    ArgumentMismatch,
    DecodeError,
    MissingDecoder,
    NewerFormat,
    TimedOut,
)
from windlass.hooks import AppHooks
from windlass.middleware import Middleware, MiddlewareStack
from windlass.settings import Settings
from windlass.task import Task
from windlass.worker.logs.events import LogEvent, Notices, log_dead_letter
from windlass.worker.run.hooks import HookNotes
from windlass.worker.run.interrupts import ThreadGuard
from windlass.worker.run.rules import Rules, find_spent_budget, overridden, rules_of
from windlass.worker.run.steps import RunSteps
from windlass.worker.run.transactions import RunEnding, Transactions

log = getLogger("windlass.worker")

#: The delay of a retry after an error outside the task function.
ESCAPE_DELAY_MS = 1_000

#: For a pipeline without an app.
NO_HOOKS = AppHooks()
#: Instead of a delay: there is no next attempt.
NO_RETRY = -1


class Run(msgspec.Struct, frozen=True):
    """A claim that can be started. The collector of cycles must see it: the context of a task that
    may end its job in a transaction leads back here."""

    claim: Claim
    task: Task[..., Any]
    policy: Retry
    result_ttl_ms: int
    timeout_ms: int  # 0 is without end
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    context: Context
    delay_if_killed_ms: int  # until the next attempt, if the supervisor ends this run


class Execution:
    """Turns claims into outcomes, for all slots of a child at once. `report_progress` gets the
    progress of a claimed job, `leave` gets tasks whose calls do not fit this version, and `state`
    is the value of the lifespan. `hook_notes` get values and exceptions of tasks with hooks."""

    def __init__(
        self,
        settings: Settings,
        report_progress: Callable[[Claim, bytes], None],
        leave: Callable[[str], None],
        middleware: Sequence[Middleware] = (),
        state: object = None,
        packing: Packing = PLAIN,
        hook_notes: HookNotes | None = None,
        transactions: Transactions | None = None,
        steps: StepVerbs | None = None,
    ) -> None:
        self._settings = settings
        self._packing = packing
        self._report_progress = report_progress
        self._leave = leave
        self._middleware = middleware
        self._state = state
        self._random = Random()
        self._rules: dict[Task[..., Any], Rules] = {}
        self._notices = Notices()
        self._transactions = transactions
        self._steps = steps
        self._hook_notes = hook_notes
        self._hooks = NO_HOOKS if hook_notes is None else hook_notes.hooks

    # -------------------------------------------------------------------------------- preparing

    def prepare(self, claim: Claim, task: Task[..., Any]) -> Run | Outcome:
        """Prepare a run; return an outcome instead when there is nothing to call."""
        rules = self._rules.get(task) or self._learn(task)
        policy, ttl_ms, timeout_ms = rules
        context = None
        try:
            envelope = self._packing.unpack_call(claim.payload, claim.task)
            if envelope.options != NO_OVERRIDES:
                policy, ttl_ms, timeout_ms = overridden(rules, envelope.options)
            had = claim.counters
            # If every start was an attempt, and attempts are left, no other budget is used.
            if had.starts != had.attempt or had.attempt > policy.max_attempts:
                spent = find_spent_budget(had, policy, self._settings.max_crashes)
                if spent is not None:
                    return self._bury(claim, *spent, started=False)
            context = Context(
                job_id=claim.id,
                task=claim.task,
                queue=queue_of(claim.queue),
                attempt=had.attempt,
                max_attempts=policy.max_attempts,
                sink=partial(self._report_progress, claim),
                state=self._state,
                headers=envelope.headers,
            )
            args, kwargs = task.codecs[envelope.codec].decode(bytes(envelope.call))
        except NewerFormat as error:
            return self._leave_to_others(claim, error)
        except (ArgumentMismatch, MissingDecoder) as error:
            if not is_mismatched_for_good(claim.counters.strays):
                return self._leave_to_others(claim, error)
            return self._bury(claim, Reason.UNDECODABLE, FailureText.of(error), started=False)
        except (DecodeError, TypeError, ValueError) as error:
            return self._bury(claim, Reason.UNDECODABLE, FailureText.of(error), started=False)
        except BaseException as error:  # noqa: BLE001  # raised by code that rebuilds values: retry
            if context is None:
                return self.conclude_escape(claim, error, policy.max_attempts)
            run = Run(claim, task, policy, ttl_ms, timeout_ms, (), {}, context, NO_RETRY)
            return self._conclude_failure(run, error)
        first = (context,) if task.takes_context else ()
        delay_ms = self._delay_if_killed_ms(policy, claim, timeout_ms) if timeout_ms else NO_RETRY
        args = (*first, *args)
        return Run(claim, task, policy, ttl_ms, timeout_ms, args, kwargs, context, delay_ms)

    def _leave_to_others(self, claim: Claim, error: DecodeError) -> Outcome:
        """Leave a job to workers with another version of the app, or with the missing secret or
        codec."""
        self._leave(claim.task)
        if self._notices.is_due(claim.task):
            _log_left(claim.task, error)
        why = self._pack(claim, FailureText.brief(error))
        return Unroutable(id=claim.id, token=claim.token, why=why)

    def _learn(self, task: Task[..., Any]) -> Rules:
        """Let options of the task override settings of the app."""
        rules = self._rules[task] = rules_of(task, self._settings)
        return rules

    def _delay_if_killed_ms(self, policy: Retry, claim: Claim, timeout_ms: int) -> int:
        """Decide on the retry after a hard time-out. The process may be killed in the run, so
        decide before it. The predicate is not asked: there is no error yet."""
        attempt = claim.counters.attempt
        decision = policy.decide(_timed_out(timeout_ms), attempt, self._random, ask=False)
        return NO_RETRY if isinstance(decision, GiveUp) else decision.delay_ms

    # ---------------------------------------------------------------------------------- running

    def run(self, run: Run, guard: ThreadGuard) -> Outcome:
        running.set(run.context)
        ending = self._equip(run)
        try:
            if run.task.in_transaction:
                transaction = run.context.transaction()
                with transaction as connection:
                    run.context.enter_connection(connection)
                    value = transaction.result = self._call(run, guard)
            else:
                value = self._call(run, guard)
        except BaseException as error:  # noqa: BLE001  # even SystemExit is the failure of one job
            ended = None if ending is None else ending.close(error)
            return ended or self._conclude_failure(run, error)
        ended = None if ending is None else ending.close()
        return ended or self._conclude_success(run, value)

    def _call(self, run: Run, guard: ThreadGuard) -> object:
        """Call the function. Interrupts arrive only until this returns."""
        try:
            guard.lower_shield()
            if self._middleware:
                with MiddlewareStack(self._middleware, run.context):
                    return run.task.function(*run.args, **run.kwargs)
            return run.task.function(*run.args, **run.kwargs)
        finally:
            try:
                guard.end()
            except Interrupted:  # after the function has ended; no second interrupt comes
                guard.end()

    async def run_async(self, run: Run) -> Outcome:
        running.set(run.context)
        ending = self._equip(run)
        try:
            if run.task.in_transaction:
                transaction = run.context.transaction()
                async with transaction as connection:
                    run.context.enter_connection(connection)
                    value = transaction.result = await self._await(run)
            else:
                value = await self._await(run)
        except BaseException as error:  # noqa: BLE001  # even SystemExit is the failure of one job
            ended = None if ending is None else ending.close(error)
            return ended or self._conclude_failure(run, error)
        ended = None if ending is None else ending.close()
        return ended or self._conclude_success(run, value)

    async def _await(self, run: Run) -> object:
        if self._middleware:
            with MiddlewareStack(self._middleware, run.context):
                return await run.task.function(*run.args, **run.kwargs)
        return await run.task.function(*run.args, **run.kwargs)

    def _equip(self, run: Run) -> RunEnding | None:
        """Let the task store steps, and end its job in a transaction, with an engine that can."""
        ending = None
        if self._transactions is not None:
            conclude = partial(self._conclude_success, run)
            ending = RunEnding(self._transactions, run.claim, run.context, conclude)
            run.context.enter_transactions(ending)
        if self._steps is not None:
            run.context.enter_steps(partial(self._make_steps, self._steps, run.claim, ending))
        return ending

    def _make_steps(
        self, verbs: StepVerbs, claim: Claim, ending: RunEnding | None, context: Context
    ) -> RunSteps:
        return RunSteps(verbs, self._packing, self._settings.codec, claim, context, ending)

    # --------------------------------------------------------------------------------- deciding

    def _conclude_success(self, run: Run, value: object) -> Outcome:
        claim = run.claim
        result = None
        if run.result_ttl_ms:  # otherwise the value is of no use, and may be one without encoding
            try:
                codec = run.task.codec
                result = codec.encode_result(value)
                result = self._packing.pack_result(
                    codec.mark, result, claim.task, claim.id, claim.payload
                )
                if len(result) > self._settings.max_payload:
                    check_size(result, self._settings.max_payload, f"The result of {claim.task}")
            except BaseException as error:  # noqa: BLE001  # encoding a value may raise anything
                return self._bury(claim, Reason.BAD_RESULT, FailureText.of(error))
        if self._hooks.is_used and self._hook_notes is not None:
            self._hook_notes.note(claim, value=value)
        return Succeeded(
            id=claim.id, token=claim.token, result=result, result_ttl_ms=run.result_ttl_ms
        )

    def _conclude_failure(self, run: Run, error: BaseException) -> Outcome:
        try:
            self._note_error(run.claim, error)
            outcome = self._judge(run, error)
            if run.context.interruption is Interruption.CANCELLED:
                self._forget_hooks(run.claim)  # the engine ends the job as cancelled
            return outcome
        except BaseException as slip:  # noqa: BLE001  # of a predicate, or of the error's own class
            return self.conclude_escape(run.claim, slip, run.policy.max_attempts)
        finally:
            clear_frames(error)  # also if no text was built, as for a snooze

    def conclude_escape(
        self, claim: Claim, error: BaseException, max_attempts: int | None = None
    ) -> Outcome:
        """Count an error outside the task function as a failed attempt. Without `max_attempts` of
        the job, the setting of the app limits the attempts."""
        self._note_error(claim, error)
        text = FailureText.of(error)
        packed = self._pack(claim, text)
        with suppress(BaseException):  # a log handler of the app may fail
            log.error(LogEvent.JOB_ESCAPED, claim.id, claim.task, text.name)
        if claim.counters.attempt < (max_attempts or self._settings.retry.max_attempts):
            return Retried(id=claim.id, token=claim.token, delay_ms=ESCAPE_DELAY_MS, error=packed)
        return Buried(
            id=claim.id,
            token=claim.token,
            reason=Reason.EXHAUSTED,
            error=packed,
            fingerprint=self._fingerprint(claim, text),
        )

    def _judge(self, run: Run, error: BaseException) -> Outcome:
        claim = run.claim
        if isinstance(error, Snooze):
            return self._snooze(run, error)
        if isinstance(error, Interrupted | CancelledError):
            cause = run.context.interruption
            if cause is Interruption.CANCELLED:
                return _give_up_cancelled(claim)
            if cause is Interruption.TIMED_OUT:
                error = _timed_out(run.timeout_ms, error)
                self._note_error(claim, error)  # hooks get the error that is stored
        explain_raise(error)
        # Decide before building the text: a predicate that fails adds a note to the error.
        decision = run.policy.decide(error, claim.counters.attempt, self._random)
        text = FailureText.of(error)
        if isinstance(decision, GiveUp):
            is_over = isinstance(error, TimedOut)
            return self._bury(claim, Reason.TIMED_OUT if is_over else decision.reason, text)
        log.warning(
            LogEvent.JOB_FAILED,
            claim.id,
            claim.task,
            claim.counters.attempt,
            run.policy.max_attempts,
            text.name,
            describe_ms(decision.delay_ms),
        )
        packed = self._pack(claim, text)
        return Retried(id=claim.id, token=claim.token, delay_ms=decision.delay_ms, error=packed)

    def _snooze(self, run: Run, snooze: Snooze) -> Outcome:
        claim, had = run.claim, run.claim.counters.snoozes
        if had < self._settings.max_snoozes:
            return Snoozed(id=claim.id, token=claim.token, delay_ms=snooze.delay_ms)
        message = f"snoozed once more after {had} times, and no more are allowed"
        return self._bury(claim, Reason.SNOOZED_OUT, FailureText(message=message))

    def _bury(
        self, claim: Claim, reason: Reason, text: FailureText, *, started: bool = True
    ) -> Outcome:
        log_dead_letter(claim.id, claim.task, reason, text)
        if self._hook_notes is not None:
            self._hook_notes.note_end(claim)
        error = self._pack(claim, text)
        return Buried(
            id=claim.id,
            token=claim.token,
            reason=reason,
            error=error,
            started=started,
            fingerprint=self._fingerprint(claim, text),
        )

    def _note_error(self, claim: Claim, error: BaseException) -> None:
        if self._hook_notes is not None:
            self._hook_notes.note(claim, error=error)

    def _forget_hooks(self, claim: Claim) -> None:
        if self._hook_notes is not None:
            self._hook_notes.forget((claim,))

    def _fingerprint(self, claim: Claim, text: FailureText) -> str:
        return self._packing.failure_fingerprint(text, claim.task, claim.payload)

    def _pack(self, claim: Claim, text: FailureText) -> bytes:
        return self._packing.pack_failure(text, claim.task, claim.id, claim.payload)


def unknown_task(claim: Claim, where: str) -> Unroutable:
    """The outcome of a job whose task the app there does not have."""
    why = FailureText(message=f"task {claim.task} has no code in the app of {where}").pack()
    return Unroutable(id=claim.id, token=claim.token, why=why)


def _log_left(task: str, error: DecodeError) -> None:
    if isinstance(error, MissingDecoder):
        log.warning(LogEvent.JOB_UNREADABLE_HERE, task, error)
    else:
        log.warning(LogEvent.JOB_OF_OTHER_VERSION, task, error)


def _timed_out(timeout_ms: int, error: BaseException | None = None) -> TimedOut:
    """Build the error, with the interrupt as its cause: the traceback shows where the job was."""
    message = f"The job ran for longer than its time-out, {describe_ms(timeout_ms)}."
    timed_out = TimedOut(message, timeout_ms=timeout_ms)
    timed_out.__cause__ = error
    return timed_out


def _give_up_cancelled(claim: Claim) -> Outcome:
    """Hand the job back, which ends it as cancelled. If the job was retried meanwhile, it runs
    again, because the cancellation no longer counts."""
    log.info(LogEvent.JOB_CANCELLED, claim.id, claim.task)
    return Released(id=claim.id, token=claim.token, started=True)
