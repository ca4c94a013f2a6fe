"""Headers of jobs, and the middleware that adds some at enqueue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.app.hand import Hand
from windlass import (
    Context,
    DuplicateJob,
    EnqueueCall,
    Every,
    InvalidMiddleware,
    Task,
    Unique,
    Windlass,
)
from windlass.core.headers import ACTOR, MAX_HEADER_BYTES, MAX_HEADERS
from windlass.core.serialization.envelope import unpack


@pytest.fixture
def work(app: Windlass) -> Task[..., None]:
    @app.task(name="work", headers={"team": "shop", "level": "low"})
    def work(number: int = 0) -> None: ...

    return work


@pytest.fixture
def plain(app: Windlass) -> Task[..., None]:
    @app.task(name="plain")
    def plain(number: int = 0) -> None: ...

    return plain


# ----------------------------------------------------------------------------------------- headers


def test_headers_of_task_and_caller_are_stored_together(work: Task[..., None]) -> None:
    traced = work.using(headers={"trace": "ab-1"}).using(headers={"level": "high"})
    job = traced.enqueue()
    assert job.info().headers == {"team": "shop", "level": "high", "trace": "ab-1"}
    assert asyncio.run(traced.aenqueue()).info().headers == job.info().headers
    assert work.enqueue().info().headers == {"team": "shop", "level": "low"}


def test_a_job_without_headers_stores_none(plain: Task[..., None], hand: Hand) -> None:
    assert plain.using(headers={}).enqueue().info().headers == {}
    assert hand.take().payload == b"{}"


def test_a_job_names_who_has_sent_it(app: Windlass, work: Task[..., None]) -> None:
    """The header belongs to windlass: middleware neither sees nor changes it."""

    @app.around_enqueue
    def replace(call: EnqueueCall) -> Iterator[None]:
        assert ACTOR not in call.headers
        call.headers["level"] = "high"
        yield

    sent = work.sent_by("token:ann")
    expected = {"team": "shop", "level": "high", ACTOR: "token:ann"}
    assert sent.enqueue().info().headers == expected
    assert asyncio.run(sent.aenqueue()).info().headers == expected
    assert ACTOR not in work.enqueue().info().headers
    with pytest.raises(ValueError, match="reserved"):
        work.using(headers={ACTOR: "token:ann"})


def test_the_word_in_the_arguments_is_no_header(app: Windlass) -> None:
    @app.task(name="echo")
    def echo(text: str) -> None: ...

    assert echo.enqueue('"headers"').info().headers == {}


def test_a_task_sees_its_headers(app: Windlass) -> None:
    @app.task(takes_context=True, headers={"team": "shop"})
    def who(ctx: Context) -> dict[str, str]:
        return dict(ctx.headers)

    with app.worker():
        assert who.using(headers={"user": "ä"}).enqueue().result(timeout=20) == {
            "team": "shop",
            "user": "ä",
        }
    assert who() == {"team": "shop"}


def test_schedules_keep_the_headers_of_their_task(app: Windlass) -> None:
    @app.task(name="tick", schedule=Every("1h"), headers={"team": "shop"})
    def tick() -> None: ...

    [(_, entry)] = app.declared_schedules()
    assert unpack(entry.envelope, entry.task).headers == {"team": "shop"}


@pytest.mark.parametrize(
    ("headers", "kind", "said"),
    [
        ("text", TypeError, "must be a dict of text to text"),
        ({"a": 1}, TypeError, r"a must be text, found 1: write str\(...\)"),
        ({1: "a"}, ValueError, "a name must be 1 to 64 characters"),
        ({"a b": "a"}, ValueError, "a name must be 1 to 64 characters"),
        ({"": "a"}, ValueError, "a name must be 1 to 64 characters"),
        ({"Windlass-Codec": "a"}, ValueError, "that begin with 'windlass' are reserved"),
        ({"a": "\ud800"}, ValueError, "text that UTF-8 can encode"),
        ({"a": "x" * MAX_HEADER_BYTES}, ValueError, "take 8,193 bytes, and the limit is 8,192"),
        ({f"h{n}": "" for n in range(MAX_HEADERS + 1)}, ValueError, "found 33"),
    ],
)
def test_headers_that_cannot_be_stored_are_refused(
    app: Windlass, plain: Task[..., None], headers: Any, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        plain.using(headers=headers)
    with pytest.raises(kind, match=said):
        app.task(headers=headers)


def test_the_bounds_hold_for_all_headers_together(app: Windlass) -> None:
    half = "x" * (MAX_HEADER_BYTES // 2)

    @app.task(headers={"a": half})
    def work() -> None: ...

    with pytest.raises(ValueError, match="8,194 bytes"):
        work.using(headers={"b": half}).enqueue()


# ------------------------------------------------------------------------------ around an enqueue


@pytest.fixture
def seen(app: Windlass) -> list[object]:
    """What the middleware `outer` and `inner` were told, in its order."""
    seen: list[object] = []

    @app.around_enqueue
    def outer(call: EnqueueCall) -> Iterator[None]:
        seen.append(("outer", call.task, call.queue, call.priority, dict(call.headers)))
        call.headers["trace"] = "1"
        try:
            yield
        except Exception as error:
            seen.append(type(error))
            raise
        seen.append(("stored", call.job.id if call.job else None))

    @app.around_enqueue
    @contextmanager
    def inner(call: EnqueueCall) -> Iterator[None]:
        seen.append(("inner", call.headers["trace"]))
        yield

    return seen


def test_middleware_adds_headers(work: Task[..., None], seen: list[object]) -> None:
    job = work.using(priority=3).enqueue()
    assert seen == [
        ("outer", "work", "default", 3, {"team": "shop", "level": "low"}),
        ("inner", "1"),
        ("stored", job.id),
    ]
    assert job.info().headers == {"team": "shop", "level": "low", "trace": "1"}
    assert work.headers == {"team": "shop", "level": "low"}


def test_it_has_one_form_for_coroutines_too(work: Task[..., None], seen: list[object]) -> None:
    job = asyncio.run(work.aenqueue())
    assert job.info().headers["trace"] == "1"
    assert seen[-1] == ("stored", job.id)


def test_each_of_many_calls_passes_it(
    app: Windlass, work: Task[..., None], plain: Task[..., None], seen: list[object]
) -> None:
    jobs = app.enqueue_many([work.bind(1), plain.bind(2)])
    jobs += asyncio.run(work.aenqueue_many([(3,), (4,)]))
    assert all(job.info().headers["trace"] == "1" for job in jobs)
    stored = [entry[1] for entry in seen if isinstance(entry, tuple) and entry[0] == "stored"]
    assert sorted(stored) == sorted(job.id for job in jobs)


@pytest.mark.parametrize("many", [True, False])
def test_what_it_raises_keeps_the_call_from_being_stored(
    app: Windlass, work: Task[..., None], seen: list[object], many: bool
) -> None:
    @app.around_enqueue
    def refuse(call: EnqueueCall) -> Iterator[None]:
        if call.headers["trace"] == "1":
            raise PermissionError("not you")
        yield

    with pytest.raises(PermissionError, match="not you") as caught:
        work.enqueue_many([(1,), (2,)]) if many else work.enqueue(1)
    assert any("refuse, before the enqueue" in note for note in caught.value.__notes__)
    assert seen[-1] is PermissionError
    assert app.engine.stats().totals == {}


def test_it_sees_why_a_call_was_not_stored(app: Windlass, seen: list[object]) -> None:
    @app.task(name="once", unique=Unique(on_conflict="raise"))
    def once() -> None: ...

    once.enqueue()
    with pytest.raises(DuplicateJob):
        once.enqueue()
    assert seen[-1] is DuplicateJob


def test_headers_that_it_makes_are_checked(app: Windlass, plain: Task[..., None]) -> None:
    @app.around_enqueue
    def wrong(call: EnqueueCall) -> Iterator[None]:
        call.headers["user"] = 7  # type: ignore[assignment]  # the subject
        yield

    with pytest.raises(TypeError, match="user must be text, found 7"):
        plain.enqueue()


def test_middleware_is_written_with_def(app: Windlass) -> None:
    async def wrong(call: EnqueueCall) -> None: ...

    with pytest.raises(InvalidMiddleware, match=r"async def\. .* yield where the call is stored"):
        app.around_enqueue(wrong)  # type: ignore[type-var]  # the subject
    with pytest.raises(InvalidMiddleware, match=r"@app\.around_enqueue is for a function"):
        app.around_enqueue(7)  # type: ignore[type-var]  # the subject
