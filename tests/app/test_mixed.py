"""`app.enqueue_many`: calls of several tasks, stored together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from windlass import Call, EncodeError, State, Task, Windlass


@pytest.fixture
def resize(app: Windlass) -> Task[..., int]:
    @app.task(name="resize")
    def resize(width: int) -> int:
        return width

    return resize


@pytest.fixture
def welcome(app: Windlass) -> Task[..., str]:
    @app.task(name="welcome", queue="mail")
    def welcome(user: str) -> str:
        return user

    return welcome


def test_calls_of_several_tasks(
    app: Windlass, resize: Task[..., int], welcome: Task[..., str]
) -> None:
    calls: list[Call[Any]] = [
        resize.bind(1),
        welcome.using(priority=5).bind("ann"),
        app.task_named("elsewhere").bind(3),
    ]
    for jobs in (app.enqueue_many(calls), asyncio.run(app.aenqueue_many(iter(calls)))):
        assert [job.task for job in jobs] == ["resize", "welcome", "elsewhere"]
        assert [job.info().queue for job in jobs] == ["default", "mail", "default"]
        assert jobs[1].info().priority == 5
    assert app.enqueue_many([]) == []


def test_many_are_stored_in_chunks(app: Windlass, resize: Task[..., int]) -> None:
    jobs = app.enqueue_many(resize.bind(number) for number in range(1_001))
    assert len({job.id for job in jobs}) == 1_001


def test_a_chunk_is_stored_as_a_whole_or_not_at_all(
    app: Windlass, resize: Task[..., int], welcome: Task[..., str]
) -> None:
    def calls() -> Any:
        for number in range(500):
            yield resize.bind(number)
        yield welcome.bind("ann")
        raise LookupError("no more")

    with pytest.raises(LookupError) as caught:
        app.enqueue_many(calls())
    assert caught.value.__notes__ == ["500 jobs were enqueued before this."]
    with pytest.raises(EncodeError):
        app.enqueue_many([welcome.bind("ann"), resize.bind("wide")])
    assert app.engine.stats().queues == {"default": {State.READY: 500}}


@pytest.mark.parametrize("owner", ["app", "task"])
def test_what_are_no_calls_is_told_what_to_do(
    app: Windlass, resize: Task[..., int], owner: str
) -> None:
    target: Any = app if owner == "app" else resize

    async def stream() -> AsyncIterator[Call[int]]:
        yield resize.bind(1)

    for wrong, said in (
        ("resize", "found one str: put the calls into a list"),
        (b"resize", "found one bytes: put the calls into a list"),
        (resize.bind(1), "found one Call: put the calls into a list"),
        ({"a": 1}, "found one dict: put the calls into a list"),
        (7, "found one int"),
        (stream(), r"found one async_generator: collect them first, \[call async for"),
        (resize.aenqueue(1), "found one coroutine: collect them first"),
        ([resize.aenqueue(1)], r"aenqueue\(\.\.\.\) already enqueues; write task\.bind\(\.\.\.\)"),
        ([resize.enqueue(1)], r"is enqueued already; write task\.bind\(\.\.\.\) instead"),
        (["resize"], r"found 'resize': write "),
    ):
        with pytest.raises(TypeError, match=said):
            target.enqueue_many(wrong)


def test_tuples_name_no_task(app: Windlass) -> None:
    with pytest.raises(TypeError, match=r"found \(1,\): write task\.bind\(\.\.\.\) for each call"):
        app.enqueue_many([(1,)])  # type: ignore[arg-type]  # the subject


def test_a_task_of_another_app_is_refused(app: Windlass) -> None:
    with Windlass("sqlite:///:memory:") as other:
        call = other.task_named("elsewhere").bind()
        with pytest.raises(TypeError, match="elsewhere, which is a task of another app"):
            app.enqueue_many([call])
