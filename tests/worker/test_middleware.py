"""Middleware around the runs of jobs: what it sees, and what it cannot change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context as Variables
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest

from windlass import Context, InvalidMiddleware, Retry, RetryLater, Snooze, Windlass
from windlass.core.failures import FailureText
from windlass.core.serialization.envelope import Envelope, pack
from windlass.core.states import Counters
from windlass.engine.contract import Buried, Claim, Outcome, Retried, Snoozed, Succeeded
from windlass.worker.run.interrupts import ThreadGuard
from windlass.worker.run.pipeline import Execution, Run

seen: list[str] = []
deposit: ContextVar[str] = ContextVar("deposit")


@pytest.fixture(autouse=True)
def _nothing_was_seen() -> None:
    seen.clear()


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:///:memory:", retry=Retry(3, base=7, jitter=0))


def plain(text: str) -> str:
    seen.append(f"task {text}")
    if text == "fail":
        raise ValueError("told to fail")
    return text


async def coroutine(text: str) -> str:
    await asyncio.sleep(0)
    return plain(text)


Function = Callable[..., Any]
both = pytest.mark.parametrize("function", [plain, coroutine])


def run(app: Windlass, function: Function, text: str = "go", state: object = None) -> Outcome:
    task = app.tasks.get("task") or app.task(name="task")(function)
    execution = Execution(
        app.settings, lambda claim, progress: None, lambda name: None, app.middleware, state
    )
    call = msgspec.Raw(task.codec.encode((text,), {}))
    claim = Claim(
        id="job-1",
        token="nonce",
        task="task",
        queue="mail",
        priority=0,
        payload=pack(Envelope(task="task", call=call)),
        counters=Counters(attempt=1, starts=1),
        created_ms=0,
    )
    prepared = execution.prepare(claim, task)
    assert isinstance(prepared, Run)
    if task.is_async:
        return asyncio.run(execution.run_async(prepared))
    guard = ThreadGuard()
    guard.begin(prepared.context)
    return Variables().run(execution.run, prepared, guard)


def error_of(outcome: Outcome) -> FailureText:
    assert isinstance(outcome, Retried | Buried)
    return FailureText.unpack(outcome.error)


@both
def test_it_surrounds_the_task_and_the_first_is_the_outermost(
    app: Windlass, function: Function
) -> None:
    @app.around_run
    def first(ctx: Context) -> Iterator[None]:
        seen.append(f"first in {ctx.job_id} {ctx.queue} {ctx.attempt} {ctx.state}")
        yield
        seen.append("first out")

    @app.around_run
    @contextmanager
    def second(ctx: Context) -> Iterator[None]:
        seen.append("second in")
        yield
        seen.append("second out")

    outcome = run(app, function, state="state")
    assert isinstance(outcome, Succeeded)
    assert outcome.result == b'"go"'
    assert seen == [
        "first in job-1 mail 1 state",
        "second in",
        "task go",
        "second out",
        "first out",
    ]


@both
def test_it_may_set_variables_for_the_task(app: Windlass, function: Function) -> None:
    @app.around_run
    def depositing(ctx: Context) -> Iterator[None]:
        token = deposit.set("here")
        yield
        deposit.reset(token)

    @app.around_run
    def looking(ctx: Context) -> Iterator[None]:
        seen.append(deposit.get())
        yield

    assert isinstance(run(app, function), Succeeded)
    assert seen == ["here", "task go"]


@both
def test_an_error_of_the_task_is_seen_and_cannot_be_hidden(
    app: Windlass, function: Function
) -> None:
    @app.around_run
    def outer(ctx: Context) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(f"outer saw {error}")
            raise

    @app.around_run
    def hiding(ctx: Context) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(f"hid {error}")

    outcome = run(app, function, "fail")
    assert isinstance(outcome, Retried)
    assert outcome.delay_ms == 7_000, "the policy is the task's own"
    assert error_of(outcome).message == "told to fail"
    assert seen == ["task fail", "hid told to fail", "outer saw told to fail"]


@both
def test_an_error_before_the_task_is_a_failed_attempt_that_names_it(
    app: Windlass, function: Function
) -> None:
    @app.around_run
    def outer(ctx: Context) -> Iterator[None]:
        try:
            yield
        except LookupError as error:
            seen.append(f"outer saw {error}")
            raise

    @app.around_run
    def broken(ctx: Context) -> Iterator[None]:
        raise LookupError("no tenant")
        yield

    outcome = run(app, function)
    assert isinstance(outcome, Retried)
    assert error_of(outcome).type == "LookupError"
    assert f"Raised by the middleware {__name__}." in error_of(outcome).traceback
    assert "broken, before the task" in error_of(outcome).traceback
    assert seen == ["outer saw no tenant"], "the task did not run, and what was entered is left"


@both
def test_an_error_after_the_task_is_a_failed_attempt(app: Windlass, function: Function) -> None:
    @app.around_run
    def committing(ctx: Context) -> Iterator[None]:
        yield
        raise OSError("the commit failed")

    outcome = run(app, function)
    assert isinstance(outcome, Retried)
    assert error_of(outcome).message == "the commit failed"
    assert "committing, after the task" in error_of(outcome).traceback


@both
def test_it_may_translate_an_error(app: Windlass, function: Function) -> None:
    @app.around_run
    def translating(ctx: Context) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise RetryLater(60) from error

    outcome = run(app, function, "fail")
    assert isinstance(outcome, Retried)
    assert outcome.delay_ms == 60_000


def test_it_may_put_a_job_off(app: Windlass) -> None:
    @app.around_run
    def closed_at_night(ctx: Context) -> Iterator[None]:
        raise Snooze("1h")
        yield

    outcome = run(app, plain)
    assert isinstance(outcome, Snoozed)
    assert seen == []


def test_what_is_no_context_manager_is_named(app: Windlass) -> None:
    def forgot_to_yield(ctx: Context) -> Any:
        return None

    app.around_run(forgot_to_yield)
    assert "forgot_to_yield, before the task" in error_of(run(app, plain)).traceback


def test_a_plain_call_runs_without_it(app: Windlass) -> None:
    @app.around_run
    def noting(ctx: Context) -> Iterator[None]:
        seen.append("in")
        yield

    assert app.task(name="task")(plain)("x") == "x"
    assert seen == ["task x"]


async def written_with_async(ctx: Context) -> Any:
    yield


@pytest.mark.parametrize("wrong", [written_with_async, coroutine, "text"])
def test_what_cannot_serve_both_kinds_is_refused(app: Windlass, wrong: Any) -> None:
    with pytest.raises(InvalidMiddleware, match=r"around_run|written with async def"):
        app.around_run(wrong)
    assert app.middleware == ()


@pytest.mark.parametrize("wrong", ["text", coroutine])
def test_a_lifespan_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidMiddleware, match="lifespan must be"):
        Windlass("sqlite:///:memory:", lifespan=wrong)
