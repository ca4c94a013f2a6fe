"""Calls the hooks of jobs: after the engine has accepted an outcome, and apart from the jobs.

1. `HookNotes` keeps what an outcome does not contain, the value or the exception of a run, from the
   end of the run until the engine has accepted its outcome. A rejected outcome calls no hook.
2. `HookCall` makes the `JobEvent` of an accepted outcome, `ForcedEndCall` that of a run which the
   supervisor ended.
3. `HookThread` calls hooks one at a time, in one thread of the child, from a bounded queue. When
   the queue is full, calls are dropped and counted. No error of a hook reaches a job.

Hooks are called at most once: a process that dies takes its waiting calls with it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from contextvars import Context as Variables
from datetime import timedelta
from logging import getLogger
from queue import SimpleQueue
from threading import Lock, Semaphore, Thread
from time import monotonic
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from windlass.app import Windlass
from windlass.core.durations import describe_ms
from windlass.core.failures import FailureText
from windlass.core.quantities import Count
from windlass.core.queues.labels import queue_of
from windlass.core.retry import Retry
from windlass.core.states import Event, Reason, State
from windlass.engine.contract import (
    Buried,
    Claim,
    Failure,
    JobRecord,
    Outcome,
    Progressed,
    Retried,
    Succeeded,
    Verdict,
)
from windlass.hooks import JobEvent, JobHook
from windlass.task import Task
from windlass.worker.ipc.channel import EndedByForce
from windlass.worker.logs.events import LogEvent

log = getLogger("windlass.worker")

#: The most calls that wait in a child.
MOST_WAITING: Final = 1_000
#: A hook that runs for longer, in seconds, is logged when another call waits for it.
SLOW_S: Final = 10.0
#: How often dropped calls are logged, in seconds.
DROPPED_S: Final = 10.0

Kind = Literal["success", "retry", "dead"]


class HookNote(NamedTuple):
    """A run that has ended."""

    claim: Claim
    value: object = None
    error: BaseException | None = None


class PreparedCall(NamedTuple):
    hooks: tuple[JobHook, ...]
    event: JobEvent


class CurrentCall(NamedTuple):
    """The hook that the thread calls, and since when."""

    hook: JobHook
    event: JobEvent
    since: float


class WaitingCall(Protocol):
    """A call that waits."""

    def prepare(self) -> PreparedCall | None:
        """Find the hooks and make the event. This reads and decodes, so the hook thread does it."""


class HookNotes:
    """Runs that have ended, until the engine has answered. `noted` is empty if no task of these
    runs has a hook."""

    def __init__(self, app: Windlass) -> None:
        self.app = app
        self.hooks = app.hooks
        self._tasks = app.known_tasks
        self.noted: dict[tuple[str, str], HookNote] = {}

    def note(self, claim: Claim, value: object = None, error: BaseException | None = None) -> None:
        task = self._tasks.get(claim.task)
        if task is not None and self.hooks.concern(task.hooks):
            self.noted[claim.id, claim.token] = HookNote(claim, value, error)

    def note_end(self, claim: Claim) -> None:
        """Note a run without a value and without an exception, unless it was noted with one."""
        if (claim.id, claim.token) not in self.noted:
            self.note(claim)

    def forget(self, outcomes: Iterable[Outcome | Claim]) -> None:
        for one in outcomes:
            if not isinstance(one, Progressed):
                self.noted.pop((one.id, one.token), None)

    def accept(self, outcomes: Iterable[Outcome], verdicts: Sequence[Verdict]) -> list[HookCall]:
        """The calls for outcomes with these verdicts of the engine. Each is returned once."""
        calls = []
        for outcome, verdict in zip(outcomes, verdicts, strict=True):
            if isinstance(outcome, Progressed):
                continue
            noted = self.noted.pop((outcome.id, outcome.token), None)
            if noted is None or verdict is Verdict.STALE:
                continue
            kind, task = _kind_of(outcome), self._tasks[noted.claim.task]
            hooks = self.hooks.find(task.hooks, f"on_{kind}") if kind is not None else ()
            if kind is not None and hooks:
                calls.append(HookCall(self.app, hooks, kind, task, noted, outcome))
        return calls


class HookCall(NamedTuple):
    """The call for an accepted outcome."""

    app: Windlass
    hooks: tuple[JobHook, ...]
    kind: Kind
    task: Task[..., Any]
    noted: HookNote
    outcome: Outcome

    def prepare(self) -> PreparedCall:
        claim, outcome = self.noted.claim, self.outcome
        failure = retry_in = reason = None
        if isinstance(outcome, Retried | Buried):
            text = FailureText.unpack(outcome.error)
            failure = self.app.packing.open_failure(text, claim.task, claim.id)
        if isinstance(outcome, Retried):
            retry_in = timedelta(milliseconds=outcome.delay_ms)
        if isinstance(outcome, Buried):
            reason = outcome.reason
        is_success = self.kind == "success"
        event = _event_of(
            self.app,
            self.task,
            self.kind,
            claim,
            result=self.noted.value if is_success else None,
            error=None if is_success else self.noted.error,
            failure=failure,
            retry_in=retry_in,
            reason=reason,
        )
        return PreparedCall(self.hooks, event)


class ForcedEndCall(NamedTuple):
    """The call for a run that the supervisor ended: only the engine knows its job."""

    app: Windlass
    end: EndedByForce

    def prepare(self) -> PreparedCall | None:
        [record] = self.app.engine.get([self.end.id])
        task = None if record is None else self.app.known_tasks.get(record.task)
        if record is None or task is None or record.state is State.CANCELLED:
            return None  # a cancelled job calls no hook, and its cancellation may have come first
        kind: Kind = "dead" if self.end.retry_in_ms is None else "retry"
        entry = _last_entry(record, Event.BURY if kind == "dead" else Event.RETRY)
        hooks = self.app.hooks.find(task.hooks, f"on_{kind}")
        if entry is None or not hooks:
            return None
        failure = FailureText.unpack(entry.error)
        claim = Claim(
            id=record.id,
            token="",
            task=record.task,
            queue=record.queue,
            priority=record.priority,
            payload=record.payload,
            counters=msgspec.structs.replace(record.counters, attempt=entry.attempt),
            created_ms=record.created_ms,
        )
        retry_in = self.end.retry_in_ms
        event = _event_of(
            self.app,
            task,
            kind,
            claim,
            failure=self.app.packing.open_failure(failure, record.task, record.id),
            retry_in=None if retry_in is None else timedelta(milliseconds=retry_in),
            reason=Reason.TIMED_OUT if kind == "dead" else None,
        )
        return PreparedCall(hooks, event)


def _last_entry(record: JobRecord, event: Event) -> Failure | None:
    """The last entry of an event in the history: the job may have run again since."""
    return next((entry for entry in reversed(record.failures) if entry.event == event), None)


def _kind_of(outcome: Outcome) -> Kind | None:
    if isinstance(outcome, Succeeded):
        return "success"
    if isinstance(outcome, Retried):
        return "retry"
    return "dead" if isinstance(outcome, Buried) else None


def _event_of(
    app: Windlass,
    task: Task[..., Any],
    kind: Kind,
    claim: Claim,
    *,
    result: object = None,
    error: BaseException | None = None,
    failure: FailureText | None = None,
    retry_in: timedelta | None = None,
    reason: Reason | None = None,
) -> JobEvent:
    policy = task.retry or app.settings.retry
    headers: dict[str, str] = {}
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    with suppress(Exception):  # a dead job may be one that cannot be decoded
        envelope = app.packing.unpack_call(claim.payload, claim.task)
        headers = dict(envelope.headers)
        if envelope.options.retry is not None:
            policy = policy.paced_by(Retry.from_data(envelope.options.retry))
        args, kwargs = task.codecs[envelope.codec].decode(bytes(envelope.call))
    return JobEvent(
        kind=kind,
        job_id=claim.id,
        task=task.name,
        queue=queue_of(claim.queue),
        attempt=claim.counters.attempt,
        max_attempts=policy.max_attempts,
        headers=headers,
        args=tuple(args),
        kwargs=kwargs,
        result=result,
        error=error,
        failure=failure,
        retry_in=retry_in,
        reason=reason,
    )


# ----------------------------------------------------------------------------------------- calling


def call_hook(hook: JobHook, event: JobEvent) -> Coroutine[Any, Any, object] | None:
    """Call a hook with an empty set of context variables. Return the coroutine that is left to
    run, if there is one."""
    returned = Variables().run(hook, event)
    return returned if inspect.iscoroutine(returned) else None


def log_hook_failure(hook: JobHook, event: JobEvent, error: BaseException) -> None:
    with suppress(BaseException):  # a handler of the app may be what fails
        kind, name = f"on_{event.kind}", _name_of(hook)
        log.error(LogEvent.HOOK_FAILED, kind, name, event.job_id, event.task, exc_info=error)


def _name_of(hook: JobHook) -> str:
    return str(getattr(hook, "__qualname__", type(hook).__qualname__))


class HookThread:
    """Calls hooks in a thread that starts with the first call. Coroutines run on an event loop of
    that thread: no hook can block the loop of the jobs."""

    def __init__(self, app: Windlass) -> None:
        self.notes = HookNotes(app)
        self._app = app
        self._waiting: SimpleQueue[WaitingCall | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._is_closed = False
        self._has_ended = False
        self._over = Semaphore(0)  # released when the thread ends, or `close` shall not wait for it
        self._dropped = 0
        self._logged_at = -DROPPED_S
        self._current: CurrentCall | None = None
        self._slow: CurrentCall | None = None  # the last one that was logged as slow

    def accept(self, outcomes: Iterable[Outcome], verdicts: Sequence[Verdict]) -> None:
        """Call the hooks of these outcomes soon."""
        for call in self.notes.accept(outcomes, verdicts):
            self._put(call)

    def report_forced_end(self, end: EndedByForce) -> None:
        """Call the hooks of a run that the supervisor ended."""
        if self._app.hooks.is_used:
            self._put(ForcedEndCall(self._app, end))

    def close(self, timeout_s: float) -> None:
        """Finish the waiting calls, if that is possible in time and until `abandon` is called."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        if thread is not None:
            self._waiting.put(None)
            self._over.acquire(timeout=timeout_s)
            if not self._has_ended:
                self._dropped += max(1, self._waiting.qsize())
        if self._dropped:
            self._log_dropped()

    def abandon(self) -> None:
        """Let `close` return at once. Any thread may ask."""
        self._over.release()

    def _put(self, call: WaitingCall) -> None:
        self._log_slow()
        with self._lock:
            if not self._is_closed and self._waiting.qsize() < MOST_WAITING and self._start():
                self._waiting.put(call)
                return
            self._dropped += 1
        if monotonic() - self._logged_at >= DROPPED_S:
            self._log_dropped()

    def _start(self) -> bool:
        if self._thread is None:
            thread = Thread(target=self._run, name="hooks", daemon=True)
            try:
                thread.start()
            except (RuntimeError, MemoryError):
                return False  # the next call tries again
            self._thread = thread
        return True

    def _log_slow(self) -> None:
        """Log a hook that keeps others from being called, once per call."""
        current = self._current
        if current is None or current is self._slow:
            return
        seconds = monotonic() - current.since
        if seconds >= SLOW_S:
            self._slow, event = current, current.event
            kind, ran = f"on_{event.kind}", describe_ms(int(seconds) * 1000)
            name = _name_of(current.hook)
            with suppress(BaseException):  # a handler of the app may be what fails
                log.warning(LogEvent.HOOK_SLOW, kind, name, ran, event.job_id, event.task)

    def _log_dropped(self) -> None:
        self._logged_at = monotonic()
        dropped, self._dropped = self._dropped, 0
        log.warning(LogEvent.HOOKS_DROPPED, Count(dropped, "hook call"))

    def _run(self) -> None:
        # Its loop starts with the first coroutine: if that fails, it fails only this call.
        runner = asyncio.Runner()
        try:
            while (call := self._waiting.get()) is not None:
                try:
                    prepared = call.prepare()
                except BaseException:  # the engine is away, or code of the app failed
                    with suppress(BaseException):  # a handler of the app may be what fails
                        log.exception(LogEvent.HOOK_NOT_CALLED)
                    continue
                if prepared is not None:
                    for hook in prepared.hooks:
                        self._current = CurrentCall(hook, prepared.event, monotonic())
                        _call(hook, prepared.event, runner)
                    self._current = None
        finally:
            self._has_ended = True
            self._over.release()
            runner.close()


def _call(hook: JobHook, event: JobEvent, runner: asyncio.Runner) -> None:
    coroutine = None
    try:
        coroutine = call_hook(hook, event)
        if coroutine is not None:
            runner.run(coroutine, context=Variables())
    except BaseException as error:  # noqa: BLE001  # even SystemExit must not end the thread
        log_hook_failure(hook, event, error)
        if coroutine is not None:
            coroutine.close()  # no effect unless the loop could not start
