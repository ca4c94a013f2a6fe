"""The thread that calls the engine for coroutines: batches, bounds, errors and shutdown."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from windlass import EngineError, EngineUnavailable, Windlass
from windlass.client import async_batcher
from windlass.client.async_batcher import (
    MAX_BATCH,
    MAX_BATCH_BYTES,
    MAX_PENDING,
    MAX_PENDING_BYTES,
    Batcher,
)
from windlass.engine.contract import Engine
from windlass.twins import Verb


class Gate:
    """A verb that echoes its values, notes its batches, and can be held shut."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.open.set()

    def __call__(self, engine: Engine, values: Sequence[Any]) -> Sequence[Any]:
        self.batches.append(list(values))
        self.entered.release()
        assert self.open.wait(30)
        return values


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def batcher(app: Windlass, gate: Gate) -> Iterator[Batcher]:
    batcher = Batcher(lambda: app.engine)
    yield batcher
    gate.open.set()
    assert batcher.close()


async def hold(batcher: Batcher, gate: Gate) -> asyncio.Task[Any]:
    """Make the thread busy with one value until the gate opens."""
    gate.open.clear()
    first = asyncio.create_task(batcher.call(gate, "first"))
    await asyncio.to_thread(gate.entered.acquire, timeout=30)
    return first


def test_whoever_was_answered_keeps_that_when_the_engine_goes_away(batcher: Batcher) -> None:
    """Together they fail for one's value, and one by one the engine is away from the third on."""

    def verb(engine: Engine, values: Sequence[Any]) -> Sequence[Any]:
        if len(values) > 1 or values == ["bad"]:
            raise ValueError("bad")
        if values == ["late"]:
            raise EngineUnavailable("away", location="here", unsent=True)
        return values

    are_queued = threading.Event()

    def hold(engine: Engine, values: Sequence[Any]) -> Sequence[Any]:
        """Keep the thread busy until all of them are queued: then they go together."""
        assert are_queued.wait(20)
        return values

    async def all_of_them() -> list[Any]:
        calls = [batcher.call(verb, value) for value in ("good", "bad", "late", "last")]
        tasks = await start([batcher.call(hold, "first"), *calls])
        are_queued.set()
        return (await asyncio.gather(*tasks, return_exceptions=True))[1:]

    good, bad, late, last = asyncio.run(all_of_them())
    assert good == "good"
    assert isinstance(bad, ValueError)
    assert isinstance(late, EngineUnavailable)
    assert isinstance(last, EngineUnavailable)
    assert not late.unsent
    assert not last.unsent


async def start(calls: Sequence[Any]) -> list[asyncio.Task[Any]]:
    """Start coroutines and let each come to its first stop."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0)
    return tasks


# ------------------------------------------------------------------------------------------ batches


def test_everyone_gets_their_own_answer(batcher: Batcher) -> None:
    def double(engine: Engine, numbers: Sequence[int]) -> Sequence[int]:
        return [2 * number for number in numbers]

    async def main() -> list[int]:
        return await asyncio.gather(*[batcher.call(double, number) for number in range(2_000)])

    assert asyncio.run(main()) == [2 * number for number in range(2_000)]


def test_what_piles_up_goes_in_one_batch(batcher: Batcher, gate: Gate) -> None:
    async def main() -> None:
        first = await hold(batcher, gate)
        rest = await start([batcher.call(gate, number) for number in range(MAX_BATCH + 1)])
        gate.open.set()
        await asyncio.gather(first, *rest)

    asyncio.run(main())
    assert gate.batches == [["first"], list(range(MAX_BATCH)), [MAX_BATCH]]


def test_a_batch_has_a_bounded_number_of_bytes(batcher: Batcher, gate: Gate) -> None:
    """One value may have more; it goes alone."""
    sizes = [MAX_BATCH_BYTES // 2, MAX_BATCH_BYTES // 2, 1, 2 * MAX_BATCH_BYTES, 1, 1]

    async def main() -> None:
        first = await hold(batcher, gate)
        rest = await start([batcher.call(gate, at, size) for at, size in enumerate(sizes)])
        gate.open.set()
        await asyncio.gather(first, *rest)

    asyncio.run(main())
    assert gate.batches == [["first"], [0, 1], [2], [3], [4, 5]]


def test_verbs_take_turns(batcher: Batcher, gate: Gate) -> None:
    order: list[str] = []

    def noting(name: str) -> Verb[int, int]:
        def verb(engine: Engine, values: Sequence[int]) -> Sequence[int]:
            order.append(f"{name}{len(values)}")
            return values

        return verb

    put, get = noting("put"), noting("get")

    async def main() -> None:
        first = await hold(batcher, gate)
        puts = [batcher.call(put, 0) for _ in range(MAX_BATCH + 1)]
        rest = await start([*puts, batcher.call(get, 0)])
        gate.open.set()
        await asyncio.gather(first, *rest)

    asyncio.run(main())
    assert order == [f"put{MAX_BATCH}", "get1", "put1"]


def test_a_loop_is_woken_once_for_a_batch(
    batcher: Batcher, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> int:
        first = await hold(batcher, gate)
        rest = await start([batcher.call(gate, number) for number in range(100)])
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe
        woken = 0

        def counting_wake(*args: Any, **kwargs: Any) -> Any:
            nonlocal woken
            woken += 1
            return wake(*args, **kwargs)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counting_wake)
        gate.open.set()
        await asyncio.gather(first, *rest)
        return woken

    assert asyncio.run(main()) == 2  # for "first", and for the hundred


def test_loops_in_several_threads_share_a_batcher(batcher: Batcher, gate: Gate) -> None:
    answers: dict[int, list[int]] = {}

    def serve(thread: int) -> None:
        async def main() -> list[int]:
            numbers = range(thread * 1_000, thread * 1_000 + 300)
            return list(await asyncio.gather(*[batcher.call(gate, number) for number in numbers]))

        answers[thread] = asyncio.run(main())

    threads = [threading.Thread(target=serve, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {n: list(range(n * 1_000, n * 1_000 + 300)) for n in range(4)}


def test_the_loop_s_own_threads_are_not_used(batcher: Batcher, gate: Gate) -> None:
    async def main() -> list[str]:
        await batcher.call(gate, 1)
        return [thread.name for thread in threading.enumerate()]

    names = asyncio.run(main())
    assert names.count("windlass-io") == 1
    assert not [name for name in names if name.startswith("asyncio")]


# ------------------------------------------------------------------------------------------- errors


def test_only_the_culprit_s_call_fails(batcher: Batcher, gate: Gate) -> None:
    def refuse_three(engine: Engine, numbers: Sequence[int]) -> Sequence[int]:
        if 3 in numbers:
            raise EngineError("three is refused")
        return numbers

    async def main() -> list[Any]:
        first = await hold(batcher, gate)
        rest = await start([batcher.call(refuse_three, number) for number in range(6)])
        gate.open.set()
        await first
        return await asyncio.gather(*rest, return_exceptions=True)

    answers = asyncio.run(main())
    assert isinstance(answers[3], EngineError)
    assert [answer for answer in answers if answer is not answers[3]] == [0, 1, 2, 4, 5]


def test_an_engine_that_is_away_is_away_for_all_who_wait(batcher: Batcher, gate: Gate) -> None:
    asked = 0

    def away(engine: Engine, values: Sequence[int]) -> Sequence[int]:
        nonlocal asked
        asked += 1
        raise EngineUnavailable("away", location="here", seconds=5.0)

    async def main() -> list[Any]:
        first = await hold(batcher, gate)
        rest = await start([batcher.call(away, 0) for _ in range(MAX_PENDING)])
        late = await start([batcher.call(gate, 0, size=1) for _ in range(3)])
        gate.open.set()
        await first
        return await asyncio.gather(*rest, *late, return_exceptions=True)

    errors = asyncio.run(main())
    assert asked == 1  # and not a timeout for each batch in turn
    assert {type(error) for error in errors} == {EngineUnavailable}
    assert len({id(error) for error in errors}) == len(errors) == MAX_PENDING + 3
    assert errors[0].seconds == 5.0
    assert asyncio.run(batcher.call(gate, "again")) == "again"


def test_a_verb_that_answers_too_little_is_an_error(batcher: Batcher) -> None:
    def forgetful(engine: Engine, values: Sequence[int]) -> Sequence[int]:
        return values[1:]

    with pytest.raises(ValueError, match="zip"):
        asyncio.run(batcher.call(forgetful, 1))


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)  # the SystemExit
def test_a_thread_that_has_ended_is_replaced(batcher: Batcher, gate: Gate) -> None:
    def end_thread(engine: Engine, values: Sequence[int]) -> Sequence[int]:
        raise SystemExit

    async def main() -> Any:
        (unanswered,) = await start([batcher.call(end_thread, 1)])
        for thread in threading.enumerate():
            if thread.name == "windlass-io":
                await asyncio.to_thread(thread.join, 30)
        answer = await asyncio.wait_for(batcher.call(gate, 2), 30)
        unanswered.cancel()
        return answer

    assert asyncio.run(main()) == 2


def test_answers_reach_their_own_loop(batcher: Batcher, gate: Gate) -> None:
    """One batch has calls of two loops, which refuse calls from other threads when they debug."""
    answers: list[Any] = []

    async def other() -> None:
        answers.append(await batcher.call(gate, "other"))

    async def main() -> Any:
        first = await hold(batcher, gate)
        thread = threading.Thread(target=asyncio.run, args=[other()], kwargs={"debug": True})
        thread.start()
        deadline = time.monotonic() + 30
        while batcher._count < 2:  # the call of the other loop
            assert time.monotonic() < deadline
            await asyncio.sleep(0.001)
        (own,) = await start([batcher.call(gate, "own")])
        gate.open.set()
        await first
        await asyncio.to_thread(thread.join, 30)
        return await own

    assert asyncio.run(main(), debug=True) == "own"
    assert answers == ["other"]
    assert gate.batches == [["first"], ["other", "own"]]


# ------------------------------------------------------------------------------------------- bounds


def is_waiting_for_room(batcher: Batcher, calls: int) -> bool:
    return len(batcher._waiting) == calls


@pytest.mark.parametrize(
    ("calls", "size"), [(MAX_PENDING - 1, 1), (16, MAX_PENDING_BYTES // 16)], ids=["jobs", "bytes"]
)
def test_beyond_the_bounds_callers_wait(
    batcher: Batcher, gate: Gate, calls: int, size: int
) -> None:
    async def main() -> None:
        first = await hold(batcher, gate)
        most = await start([batcher.call(gate, n, size) for n in range(calls)])
        assert is_waiting_for_room(batcher, 0)
        more = await start([batcher.call(gate, n, size) for n in range(calls, calls + 5)])
        assert is_waiting_for_room(batcher, 5)
        unbounded = await start([batcher.call(gate, "a question")])
        assert is_waiting_for_room(batcher, 5)
        gate.open.set()
        await asyncio.gather(first, *most, *more, *unbounded)
        assert is_waiting_for_room(batcher, 0)

    asyncio.run(main())
    sent = [value for batch in gate.batches for value in batch]
    assert sent == ["first", *range(calls), "a question", *range(calls, calls + 5)]


def test_one_who_gives_up_takes_no_place(
    batcher: Batcher, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_batcher, "MAX_PENDING", 1)

    async def main() -> None:
        first = await hold(batcher, gate)
        calls = [batcher.call(gate, name, size=1) for name in ("quitter", "patient")]
        quitter, patient = await start(calls)
        quitter.cancel()
        gate.open.set()
        await asyncio.wait_for(asyncio.gather(first, patient), 30)
        assert quitter.cancelled()

    asyncio.run(main())
    assert gate.batches == [["first"], ["patient"]]


def test_one_who_gives_up_when_let_in_lets_the_next_in(
    batcher: Batcher, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_batcher, "MAX_PENDING", 1)

    async def main() -> None:
        first = await hold(batcher, gate)
        calls = [batcher.call(gate, name, size=1) for name in ("quitter", "patient")]
        quitter, patient = await start(calls)
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe
        wakes = iter(["the first call", "the quitter"])

        def wake_and_cancel(callback: Any, *args: Any) -> Any:
            if next(wakes, "") != "the quitter":
                return wake(callback, *args)

            def open_and_cancel() -> None:
                callback(*args)  # lets the quitter in
                quitter.cancel()  # before the quitter comes to itself

            return wake(open_and_cancel)

        monkeypatch.setattr(loop, "call_soon_threadsafe", wake_and_cancel)
        gate.open.set()
        await asyncio.wait_for(asyncio.gather(first, patient), 30)
        assert quitter.cancelled()

    asyncio.run(main())
    assert gate.batches == [["first"], ["patient"]]


def test_a_cancelled_call_reaches_the_engine(batcher: Batcher, gate: Gate) -> None:
    async def main() -> None:
        first = await hold(batcher, gate)
        cancelled, other = await start([batcher.call(gate, "cancelled"), batcher.call(gate, "b")])
        cancelled.cancel()
        gate.open.set()
        assert await asyncio.wait_for(other, 30) == "b"
        assert await first == "first"
        assert cancelled.cancelled()

    asyncio.run(main())
    assert gate.batches == [["first"], ["cancelled", "b"]]


# --------------------------------------------------------------------------------------------- ends


def abandon(batcher: Batcher, gate: Gate, values: Sequence[str]) -> None:
    """Hand values over from a loop that ends before they are answered."""

    async def main() -> None:
        await hold(batcher, gate)
        await start([batcher.call(gate, value) for value in values])

    asyncio.run(main())


def test_closing_sends_what_was_accepted(batcher: Batcher, gate: Gate) -> None:
    abandon(batcher, gate, ["a", "b"])
    threading.Timer(0.05, gate.open.set).start()
    assert batcher.close(30)
    assert gate.batches == [["first"], ["a", "b"]]
    assert "windlass-io" not in [thread.name for thread in threading.enumerate()]


def test_closing_has_a_deadline(batcher: Batcher, gate: Gate) -> None:
    abandon(batcher, gate, ["a"])
    assert batcher.close(0.01) is False
    gate.open.set()
    assert batcher.close(30)


def test_it_can_be_used_after_it_was_closed(batcher: Batcher, gate: Gate) -> None:
    call: Callable[[], Any] = lambda: asyncio.run(batcher.call(gate, 1))  # noqa: E731
    assert (call(), batcher.close(), call(), batcher.close()) == (1, True, 1, True)


def test_closing_what_was_never_used_is_nothing(batcher: Batcher) -> None:
    assert batcher.close(0)
