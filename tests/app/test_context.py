"""The context of a running job."""

import asyncio
from contextvars import copy_context

import msgspec
import pytest

from windlass import Context, NoContext, current_context
from windlass.context import MAX_PROGRESS_MESSAGE, running


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


@pytest.mark.parametrize("value", [-0.01, 1.01, 50, float("nan"), float("inf")])
def test_what_is_no_share_is_refused(value: float) -> None:
    told: list[bytes] = []
    with pytest.raises(ValueError, match="a share from 0 to 1"):
        make_context(told).progress(value)
    assert told == []


def test_a_long_message_is_cut() -> None:
    told: list[bytes] = []
    make_context(told).progress(0.5, "x" * 10_000)
    assert len(msgspec.json.decode(told[0])["message"]) == MAX_PROGRESS_MESSAGE


def test_it_shows_which_job_it_is() -> None:
    assert repr(make_context([])) == "<Context of job j1, task shop.f, attempt 2 of 5>"
