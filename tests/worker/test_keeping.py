"""A job that has failed keeps no objects in memory, for any error raised in any place.

The collector of cycles is off: what is freed here is freed at once, and not when it happens to come
by. A few locals of a megabyte are much memory before it does.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NoReturn

import pytest

from tests.worker.run.test_runners import run_all
from tests.worker.yard import Yard
from windlass.core.signals import Reject, Snooze
from windlass.core.states import State
from windlass.engine.contract import Outcome
from windlass.worker.supervisor.child_process import memory_of


class Big:
    """A large thing that a job holds."""


class Shy(Exception):
    def __str__(self) -> str:
        raise SystemExit


class Veiled(Exception):
    """It cannot even be looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit


alive: weakref.WeakSet[Big] = weakref.WeakSet()


def hold() -> Big:
    big = Big()
    alive.add(big)
    return big


def fail(name: str) -> None:
    big = hold()
    raise ValueError(name, repr(big))


def fail_deeper(name: str) -> None:
    big = hold()
    fail(name + repr(big))


def fail_again(name: str) -> None:
    big = hold()
    try:
        fail(name)
    except ValueError as error:
        raise KeyError(repr(big)) from error


def fail_while_failing(name: str) -> None:
    big = hold()
    try:
        fail(name)
    except ValueError:
        raise KeyError(repr(big))  # noqa: B904  # the context is what this is about


def keep_error(error: type[Exception], *arguments: object) -> NoReturn:
    """The frame keeps the error, and the error the frame: a cycle."""
    big = hold()
    kept = error(*arguments)
    assert big in alive
    raise kept


def keep_value_error(name: str) -> None:
    keep_error(ValueError)


def keep_reject(name: str) -> None:
    keep_error(Reject, "no")


def keep_snooze(name: str) -> None:
    keep_error(Snooze, 1)


def keep_shy(name: str) -> None:
    keep_error(Shy)


def keep_veiled(name: str) -> None:
    keep_error(Veiled)


def keep_group(name: str) -> None:
    big = hold()
    errors = []
    for _ in range(2):
        try:
            fail(name)
        except ValueError as error:
            errors.append(error)
    raise ExceptionGroup(repr(big), errors)


def fail_in_generator(name: str) -> None:
    def numbers() -> Iterator[int]:
        big = hold()
        yield 1
        keep_error(ValueError, big.__class__)

    for _ in numbers():
        pass


def give_what_cannot_be_stored(name: str) -> object:
    return hold()


PLAIN: list[Callable[[str], object]] = [
    fail,
    fail_deeper,
    fail_again,
    fail_while_failing,
    keep_value_error,
    keep_reject,
    keep_snooze,
    keep_shy,
    keep_veiled,
    keep_group,
    fail_in_generator,
    give_what_cannot_be_stored,
]


def as_coroutine(function: Callable[[str], object]) -> Callable[[str], Coroutine[Any, Any, object]]:
    async def job(name: str) -> object:
        big = hold()
        await asyncio.sleep(0)
        try:
            return function(name)
        finally:
            assert big in alive

    return job


async def fail_beside(name: str) -> None:
    """In tasks of its own, which keep their error."""
    big = hold()
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(as_coroutine(keep_value_error)(name))
    assert big in alive


async def fail_in_thread(name: str) -> None:
    big = hold()
    await asyncio.to_thread(keep_value_error, name)
    assert big in alive


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    alive.clear()
    yield
    gc.enable()


@pytest.mark.local
def test_a_worker_does_not_grow_with_what_its_jobs_held(yard: Yard) -> None:
    worker = yard.start()
    yard.await_state(yard.plain("warm"), State.SUCCEEDED)
    [child] = worker.children()
    before = memory_of(child)
    for number in range(50):  # three attempts each
        yard.plain(f"plain{number}", "fail_burdened:1")
        yard.coroutine(f"coroutine{number}", "fail_burdened:1")
    yard.await_count(State.DEAD, 100)
    after = memory_of(child)
    assert worker.children() == [child]
    assert before is not None
    assert after is not None
    assert after - before < 50 * 1024 * 1024


JOBS = [f"job{number}" for number in range(3)]


def left_after(function: Callable[..., Any]) -> int:
    """How many large things are still there when all jobs have been reported."""
    outcomes: list[Outcome] = asyncio.run(run_all(function, JOBS))
    assert len(outcomes) == len(JOBS)
    return len(alive)


@pytest.mark.parametrize("function", PLAIN, ids=lambda function: function.__name__)
def test_a_plain_function_leaves_nothing(function: Callable[[str], object]) -> None:
    assert left_after(function) == 0


@pytest.mark.parametrize("function", PLAIN, ids=lambda function: function.__name__)
def test_a_coroutine_leaves_nothing(function: Callable[[str], object]) -> None:
    assert left_after(as_coroutine(function)) == 0


@pytest.mark.parametrize("function", [fail_beside, fail_in_thread])
def test_what_a_coroutine_has_started_leaves_nothing(function: Callable[[str], object]) -> None:
    assert left_after(function) == 0
