"""The context of a running job."""

import asyncio
from contextvars import copy_context

import msgspec
import pytest

from windlass import Context, NoContext, Progress, RetryLater, Windlass, current_context
from windlass.context import (
    MAX_LOG_LINE,
    MAX_LOG_LINES,
    MAX_PROGRESS_MESSAGE,
    Report,
    running,
)


def make_context(told: list[bytes]) -> Context:
    return Context(
        job_id="j1", task="shop.f", queue="default", attempt=2, max_attempts=5, sink=told.append
    )


def test_there_is_none_outside_of_a_job() -> None:
    with pytest.raises(NoContext, match="where no job is running"):
        current_context()


def test_it_is_seen_below_the_task() -> None:
    context = make_context([])

    async def below() -> list[Context]:
        return [current_context(), await asyncio.to_thread(current_context)]

    def job() -> list[Context]:
        running.set(context)
        return asyncio.run(below())

    assert copy_context().run(job) == [context, context]


def test_progress_is_told_as_json() -> None:
    told: list[bytes] = []
    make_context(told).progress(0.5, "half way")
    assert [msgspec.json.decode(data) for data in told] == [{"value": 0.5, "message": "half way"}]


@pytest.mark.parametrize("value", [0, 1, 0.25, True])
def test_any_share_is_progress(value: float) -> None:
    told: list[bytes] = []
    make_context(told).progress(value)
    assert len(told) == 1


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (-0.01, 0.0),
        (1.004, 1.0),
        (50, 1.0),
        (float("inf"), 1.0),
        (float("nan"), 0.25),
        ("9%", 0.25),
    ],
)
def test_a_wrong_share_is_corrected_and_told_once(
    value: float, kept: float, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.context._warned", set())
    told: list[bytes] = []
    context = make_context(told)
    context.progress(0.25)
    context.progress(value)
    context.progress(value)
    assert last_report(told).value == kept
    (line,) = caplog.messages
    assert "shop.f passed a wrong value to ctx.progress" in line
    assert f"expected a number from 0 to 1, found {value!r}" in line


def test_a_long_message_is_cut() -> None:
    told: list[bytes] = []
    make_context(told).progress(0.5, "x" * 10_000)
    assert len(msgspec.json.decode(told[0])["message"]) == MAX_PROGRESS_MESSAGE


def test_it_shows_which_job_it_is() -> None:
    assert repr(make_context([])) == "<Context of job j1, task shop.f, attempt 2 of 5>"


# --------------------------------------------------------------------------------------- log lines


def last_report(told: list[bytes]) -> Report:
    return msgspec.json.decode(told[-1], type=Report)


def test_lines_and_progress_are_told_together() -> None:
    told: list[bytes] = []
    context = make_context(told)
    context.log("begun")
    assert last_report(told).value is None
    context.progress(0.5, "half way")
    context.log("going on")
    report = last_report(told)
    assert (report.value, report.message) == (0.5, "half way")
    assert [line.message for line in report.log] == ["begun", "going on"]
    assert report.log[0].at <= report.log[1].at


def test_lines_are_bounded() -> None:
    told: list[bytes] = []
    context = make_context(told)
    for number in range(MAX_LOG_LINES + 10):
        context.log(f"{number} " + "x" * 10_000)
    lines = [line.message for line in last_report(told).log]
    assert [line.split()[0] for line in lines] == [str(n) for n in range(10, MAX_LOG_LINES + 10)]
    assert {len(line) for line in lines} == {MAX_LOG_LINE}


class Opaque:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("message", "kept"), [("\ud800", "\\ud800"), (7, "7"), (None, "None"), (Opaque(), "<Opaque>")]
)
def test_any_value_can_be_a_line(message: str, kept: str) -> None:
    told: list[bytes] = []
    make_context(told).log(message)
    assert last_report(told).log[0].message == kept
    make_context(told).progress(0.5, message)
    assert last_report(told).message == kept


def test_lines_of_the_latest_attempt_are_seen(app: Windlass) -> None:
    @app.task(takes_context=True)
    def work(ctx: Context) -> None:
        ctx.log(f"attempt {ctx.attempt}")
        ctx.progress(0.25)
        if ctx.attempt == 1:
            raise RetryLater(0)
        ctx.log("done")

    job = work.enqueue()
    assert job.info().log == ()
    with app.worker():
        job.result(timeout=20)
    info = job.info()
    assert [line.message for line in info.log] == ["attempt 2", "done"]
    assert info.progress == Progress(0.25)
