"""Interrupts hit one run and never the next, in threads and on the loop; shielded calls."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import Thread
from typing import Any, cast

import pytest

from tests.worker.run.test_runners import claim_of
from windlass import Context, Interrupted, Retry, Windlass
from windlass.context import running
from windlass.core.failures import FailureText
from windlass.core.signals import Interruption
from windlass.core.states import Reason, State
from windlass.engine.contract import Buried, Outcome, Released, Retried, Succeeded
from windlass.interrupt_shield import shield
from windlass.task import Task
from windlass.worker.ipc.shared_memory import Limit, SlotTable
from windlass.worker.run.interrupts import LoopGuard, ThreadGuard, shield_engine
from windlass.worker.run.pipeline import NO_RETRY, Execution, Run
from windlass.worker.run.timeouts import Limits

#: Runs that follow each other in one thread. Every second one is interrupted about when it ends.
RUNS = 2_000


@pytest.fixture(autouse=True)
def _no_job_is_left_here() -> Iterator[None]:
    """These tests run jobs in the thread of all tests, as a worker never does."""
    token = running.set(context())
    yield
    running.reset(token)


def spend_a_moment(name: str) -> str:
    time.sleep(random.choice((0, 0.00001)))  # others may run meanwhile
    return name


def prepare(
    function: Callable[..., Any],
    name: str,
    *,
    retry: Retry | None = None,
    timeout: str = "1s",
    **settings: Any,
) -> tuple[Execution, Run]:
    app = Windlass("sqlite:///:memory:", **settings)
    task: Task[..., Any] = app.task(name="task", timeout=timeout, retry=retry or Retry())(function)
    execution = Execution(app.settings, lambda claim, progress: None, lambda task: None)
    run = execution.prepare(claim_of(task, name), task)
    assert isinstance(run, Run)
    return execution, run


def context() -> Context:
    return Context(job_id="j", task="t", queue="q", attempt=1, max_attempts=1, sink=ignore)


def ignore(progress: bytes) -> None:
    """Drop progress."""


class Interrupter:
    """Interrupts what it is handed, over and over, from another thread."""

    def __init__(self, guard: ThreadGuard) -> None:
        self.target: Context | None = None
        self._guard = guard
        self._is_over = False
        self._thread = Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._is_over:
            target = self.target
            if target is not None:
                # Also a good while after the run has ended and others have begun.
                self._guard.interrupt(target, Interruption.TIMED_OUT)

    def __enter__(self) -> Interrupter:
        self._interval_s = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # so that the two are at it at the same time
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()
        sys.setswitchinterval(self._interval_s)


def test_what_is_meant_for_one_run_never_meets_another() -> None:
    execution, first = prepare(spend_a_moment, "x")
    guard, outcomes = ThreadGuard(), list[Outcome]()
    fields = {name: getattr(first, name) for name in first.__struct_fields__}
    with Interrupter(guard) as interrupter:
        for number in range(RUNS):
            run = Run(**{**fields, "context": context()})
            guard.begin(run.context)
            if number % 2:
                interrupter.target = run.context
            outcomes.append(execution.run(run, guard))
        sum(range(10_000))  # nothing arrives late either
    met = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Retried)]
    assert len(outcomes) == RUNS
    assert all(number % 2 for number in met)
    assert met
    assert {type(outcome) for outcome in outcomes} == {Succeeded, Retried}


def test_one_that_comes_while_a_run_ends_is_of_no_effect() -> None:
    """The run waits for the lock that the one who interrupts it holds."""
    about_to_end, held = threading.Event(), threading.Event()

    def return_late(name: str) -> str:
        about_to_end.set()
        assert held.wait(20)
        return name

    execution, run = prepare(return_late, "x")
    guard = ThreadGuard()

    def interrupt() -> None:
        assert about_to_end.wait(20)
        lock = guard._lock
        with lock:
            held.set()
            time.sleep(0.05)  # until the run has come to its end and waits for the lock
            guard._lock = cast(threading.Lock, nullcontext())
            guard.interrupt(run.context, Interruption.TIMED_OUT)
            guard._lock = lock

    guard.begin(run.context)
    thread = Thread(target=interrupt)
    thread.start()
    outcome = execution.run(run, guard)
    thread.join()
    sum(range(10_000))
    assert isinstance(outcome, Succeeded)
    assert run.context.cancelled


PROFILED = """
import sys
from windlass import Context, Interrupted
from windlass.core.signals import Interruption
from windlass.worker.run.interrupts import ThreadGuard

run = Context(job_id="1", task="t", queue="q", attempt=1, max_attempts=1, sink=print)
guard = ThreadGuard()
guard.begin(run)
try:
    guard.lower_shield()
    guard.interrupt(run, Interruption.TIMED_OUT)
    for _ in range(1000):
        pass
except Interrupted:
    guard.end()
sys.setprofile(lambda *_: None)
guard.begin(run)
sys.setprofile(None)
print("done")
"""


def test_a_thread_can_be_profiled_after_an_interruption() -> None:
    """CPython 3.11 stood still at the next call."""
    ran = subprocess.run(
        [sys.executable, "-c", PROFILED], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout == "done\n", ran.stderr


def test_an_interruption_before_the_code_begins_meets_it_there() -> None:
    execution, run = prepare(spend_a_moment, "x")
    guard = ThreadGuard()
    guard.begin(run.context)
    guard.interrupt(run.context, Interruption.TIMED_OUT)
    assert isinstance(execution.run(run, guard), Retried)


def test_a_run_is_interrupted_once_at_most() -> None:
    guard, run, seen = ThreadGuard(), context(), 0
    guard.begin(run)
    guard.lower_shield()
    for cause in (Interruption.CANCELLED, Interruption.TIMED_OUT, Interruption.CANCELLED):
        with counting() as count:
            guard.interrupt(run, cause)
            sum(range(1_000))
        seen += count[0]
    guard.end()
    assert (seen, run.interruption) == (1, Interruption.CANCELLED)


def test_one_that_lost_its_job_can_still_be_interrupted() -> None:
    guard, run = ThreadGuard(), context()
    run.interruption = Interruption.LOST
    guard.begin(run)
    guard.lower_shield()
    with counting() as count:
        guard.interrupt(run, Interruption.TIMED_OUT)
        sum(range(1_000))
    guard.end()
    assert count == [1]


@contextmanager
def counting() -> Iterator[list[int]]:
    count = [0]
    try:
        yield count
    except Interrupted:
        count[0] += 1


# ----------------------------------------------------------------------------------------- shield


def test_behind_a_shield_it_is_put_off() -> None:
    guard, run, steps = ThreadGuard(), context(), list[str]()
    guard.begin(run)
    guard.lower_shield()
    try:
        with shield():
            guard.interrupt(run, Interruption.CANCELLED)
            sum(range(1_000))
            steps.append("whole")
        steps.append("never")
    except Interrupted:
        steps.append("interrupted")
    finally:
        guard.end()
    assert steps == ["whole", "interrupted"]


def test_the_calls_of_an_engine_are_shielded() -> None:
    app = Windlass("sqlite:///:memory:")
    app.engine  # noqa: B018  # opened before it is wrapped
    app.wrap_engine(shield_engine)
    task = app.task(name="task")(spend_a_moment)
    job = task.enqueue("before")
    guard, run, ids = ThreadGuard(), context(), [job.id]
    put = app.engine.put  # the wrapped one

    class Late(list[Any]):
        """Interrupted in the midst of the call, which looks at it."""

        def __iter__(self) -> Iterator[Any]:
            guard.interrupt(run, Interruption.CANCELLED)
            return super().__iter__()

        def __len__(self) -> int:
            guard.interrupt(run, Interruption.CANCELLED)
            return super().__len__()

    guard.begin(run)
    guard.lower_shield()
    try:
        ids += [placed.id for placed in put(Late([task.builder.build(b'{"args":["x"]}')]))]
        raise AssertionError("it was not interrupted")
    except Interrupted:
        guard.end()
    assert sum(counts[State.READY] for counts in app.engine.stats().queues.values()) == 2
    assert len(ids) == 1
    assert app.engine.location == app.engine.location
    app.close()


def test_other_threads_have_no_shield_and_need_none() -> None:
    done: list[str] = []

    def work() -> None:
        with shield():
            done.append("here")

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert done == ["here"]


# ------------------------------------------------------------------------------------------- loop


def test_on_the_loop_a_late_interruption_leaves_the_next_run_alone() -> None:
    async def play() -> list[str]:
        guard, first, second = LoopGuard(asyncio.get_running_loop()), context(), context()
        ends: list[str] = []

        async def run(context: Context, seconds: float) -> None:
            guard.begin(context)
            try:
                await asyncio.sleep(seconds)
                ends.append("done")
            except asyncio.CancelledError:
                ends.append("cancelled")
            finally:
                guard.end()

        await asyncio.create_task(run(first, 0))
        following = asyncio.create_task(run(second, 0.01))
        guard.interrupt(first, Interruption.CANCELLED)  # arrives when the second has begun
        await following
        third = context()
        task = asyncio.create_task(run(third, 60))
        await asyncio.sleep(0)
        await asyncio.to_thread(guard.interrupt, third, Interruption.TIMED_OUT)
        await task
        return ends

    assert asyncio.run(play()) == ["done", "done", "cancelled"]


# ---------------------------------------------------------------------------------------- judging


def interrupted(function: Callable[..., Any], cause: Interruption, **options: Any) -> Outcome:
    execution, run = prepare(function, "x", **options)
    guard = ThreadGuard()
    guard.begin(run.context)
    guard.interrupt(run.context, cause)
    return execution.run(run, guard)


def test_after_the_last_attempt_the_reason_says_that_it_timed_out() -> None:
    for policy in (Retry(1), Retry(reject_on=TimeoutError)):
        outcome = interrupted(spend_a_moment, Interruption.TIMED_OUT, retry=policy)
        assert isinstance(outcome, Buried)
        assert outcome.reason is Reason.TIMED_OUT
        assert FailureText.unpack(outcome.error).type == "windlass.errors.TimedOut"


def test_a_cancelled_run_is_handed_back() -> None:
    outcome = interrupted(spend_a_moment, Interruption.CANCELLED)
    assert isinstance(outcome, Released)
    assert outcome.started


def test_what_else_a_task_raises_is_judged_by_itself() -> None:
    execution, run = prepare(raise_value_error, "x")
    run.context.interruption = Interruption.TIMED_OUT
    guard = ThreadGuard()
    guard.begin(run.context)
    outcome = execution.run(run, guard)
    assert isinstance(outcome, Retried)
    assert FailureText.unpack(outcome.error).type == "ValueError"


def test_a_cancellation_by_itself_is_a_failure_like_any_other() -> None:
    for cause in (None, Interruption.LOST):
        execution, run = prepare(raise_cancelled, "x")
        run.context.interruption = cause
        guard = ThreadGuard()
        guard.begin(run.context)
        outcome = execution.run(run, guard)
        assert isinstance(outcome, Retried)
        assert FailureText.unpack(outcome.error).type == "asyncio.exceptions.CancelledError"


def raise_cancelled(name: str) -> None:
    raise asyncio.CancelledError


def raise_value_error(name: str) -> None:
    raise ValueError(name)


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        (Retry(2, base=3, jitter=0), 3_000),
        (Retry(1), NO_RETRY),
        (Retry(reject_on=TimeoutError), NO_RETRY),
        (Retry(2, base=3, jitter=0, retry_if=lambda error: False), 3_000),  # it is not asked
    ],
)
def test_what_becomes_of_a_killed_run_is_decided_before(retry: Retry, expected: int) -> None:
    _, run = prepare(spend_a_moment, "x", retry=retry)
    assert run.delay_if_killed_ms == expected


def test_the_time_out_of_the_call_comes_before_the_tasks_and_that_before_the_apps() -> None:
    app = Windlass("sqlite:///:memory:", timeout="3s")
    execution = Execution(app.settings, lambda claim, progress: None, lambda task: None)
    plain: Task[..., Any] = app.task(name="plain")(spend_a_moment)
    limited: Task[..., Any] = app.task(name="limited", timeout="2s")(spend_a_moment)
    found = []
    for task, called in ((plain, plain), (limited, limited), (limited, limited.using(timeout=0))):
        payload = called.builder.build(task.codec.encode(("x",), {})).payload
        claim = claim_of(task, "x")
        run = execution.prepare(type(claim)(**{**as_dict(claim), "payload": payload}), task)
        assert isinstance(run, Run)
        found.append(run.timeout_ms)
    assert found == [3_000, 2_000, 0]


def as_dict(claim: Any) -> dict[str, Any]:
    return {name: getattr(claim, name) for name in claim.__struct_fields__}


# ----------------------------------------------------------------------------------------- limits


class Wooden:
    """A guard that records its calls."""

    def __init__(self) -> None:
        self.told: list[tuple[Context, Interruption]] = []
        self.heard = threading.Event()

    def interrupt(self, run: Context, cause: Interruption) -> None:
        self.told.append((run, cause))
        self.heard.set()


def test_limits_interrupt_when_the_time_is_over_and_not_before() -> None:
    table, first = SlotTable.create(2), list[bool]()
    limits = Limits(table, 500, lambda: first.append(True), is_solo=False)
    guard, ended = Wooden(), Wooden()
    (_, short), (_, long), (_, endless) = (
        prepare(spend_a_moment, "x", timeout=timeout) for timeout in ("50ms", "60s", "0")
    )
    limits.begin(0, endless, guard, time.monotonic())
    assert (first, list(table.limits())) == ([], [])
    limits.begin(0, long, guard, time.monotonic())
    limits.begin(1, short, ended, time.monotonic())
    limits.end(1)
    since = time.monotonic()
    limits.begin(1, short, guard, since)
    [one, two] = table.limits()
    assert first == [True]
    assert [one.timeout_ms, two.timeout_ms] == [60_000, 50]
    assert two == Limit(two.generation, since + 0.55, 50, short.delay_if_killed_ms, "x", "nonce")
    assert one.generation != two.generation
    assert guard.heard.wait(20)
    assert time.monotonic() - since >= 0.05
    assert (guard.told, ended.told) == ([(short.context, Interruption.TIMED_OUT)], [])
    limits.end(1)
    assert [limit.timeout_ms for limit in table.limits()] == [60_000]
    limits.end(0)
    assert list(table.limits()) == []


def test_limits_find_the_runs_of_cancelled_jobs() -> None:
    limits = Limits(SlotTable.create(2), 500, lambda: None, is_solo=False)
    guard, other = Wooden(), Wooden()
    (_, wanted), (_, neighbour) = (
        prepare(spend_a_moment, name, timeout="0") for name in ("wanted", "neighbour")
    )
    limits.begin(0, wanted, guard, 0.0)
    limits.begin(1, neighbour, other, 0.0)
    limits.cancel(["wanted", "unknown"])
    assert guard.told == [(wanted.context, Interruption.CANCELLED)]
    assert other.told == []
    limits.end(0)
    limits.note_loss()
    assert not wanted.context.cancelled
    assert neighbour.context.cancelled


def test_every_run_in_a_solo_child_can_be_named() -> None:
    table = SlotTable.create(1)
    limits = Limits(table, 500, lambda: None, is_solo=True)
    _, run = prepare(spend_a_moment, "x", timeout="0")
    limits.begin(0, run, Wooden(), 0.0)
    [limit] = table.limits()
    assert (limit.id, limit.token, limit.ends_at) == ("x", "nonce", float("inf"))
    assert table.is_running(limit.generation)
    limits.end(0)
    limits.begin(0, run, Wooden(), 0.0)
    assert not table.is_running(limit.generation)
