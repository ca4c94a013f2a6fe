"""The two runners with a queue of claims that follow each other in the same slot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Event, Thread
from time import monotonic
from typing import Any, NoReturn

import msgspec
import pytest

from windlass.app import Windlass
from windlass.core.failures import FailureText
from windlass.core.retry import Retry
from windlass.core.serialization.envelope import Envelope, pack
from windlass.core.states import MAX_INTERRUPTIONS, Counters, Reason, stray_delay_ms
from windlass.engine.contract import Buried, Claim, Outcome, Retried, Succeeded, Unroutable
from windlass.task import Task
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.run.end_log import EndLog
from windlass.worker.run.interrupts import ThreadGuard
from windlass.worker.run.measures import RunMeasures
from windlass.worker.run.pipeline import Execution, Run
from windlass.worker.run.runners import LoopRunner, ThreadRunner
from windlass.worker.run.slot_queue import Lease, SlotQueue
from windlass.worker.run.timeouts import Limits

left_behind: ContextVar[str] = ContextVar("left_behind", default="nothing")
found: list[tuple[str, list[str]]] = []
table = SlotTable.create(1)


def look(name: str) -> None:
    found.append((left_behind.get(), table.occupied()))
    left_behind.set(name)


async def look_async(name: str) -> None:
    look(name)


def claim_of(task: Task[..., Any], name: str) -> Claim:
    call = msgspec.Raw(task.codec.encode((name,), {}))
    return Claim(
        id=name,
        token="nonce",
        task=task.name,
        queue="default",
        priority=0,
        payload=pack(Envelope(task=task.name, call=call)),
        counters=Counters(attempt=1, starts=1),
        created_ms=0,
    )


def unlimited(table: SlotTable = table) -> Limits:
    return Limits(table, 1_000, lambda: None, is_solo=False)


async def run_all(
    function: Callable[..., Any],
    names: list[str],
    *,
    slots: int = 1,
    execution: type[Execution] = Execution,
    retry: Retry | None = None,
) -> list[Outcome]:
    """Offer all claims at once, and wait for their outcomes. At the end every slot is free."""
    app = Windlass("sqlite:///:memory:")
    task: Task[..., Any] = app.task(name="look", retry=retry or Retry())(function)
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    outcomes: list[Outcome] = []

    def report(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if len(outcomes) == len(names):
            loop.call_soon_threadsafe(done.set)

    own = table if slots == 1 else SlotTable.create(slots)
    lease = Lease(own, 30_000)
    lease.confirm(monotonic())
    slot_queue = SlotQueue(lease)
    executing = execution(app.settings, lambda claim, progress: None, lambda task: None)
    for runner in (ThreadRunner, LoopRunner):
        measures = RunMeasures(lambda measured: None)
        runner(slot_queue, unlimited(own), executing, report, EndLog(), measures)
    slot_queue.offer([(claim_of(task, name), task) for name in names])
    await asyncio.wait_for(done.wait(), 20)
    assert slot_queue.busy() == 0
    assert own.occupied() == []
    return outcomes


def check(function: Callable[..., Any]) -> None:
    found.clear()
    names = ["first", "second", "third"]
    outcomes = asyncio.run(run_all(function, names))
    assert [type(outcome) for outcome in outcomes] == [Succeeded] * 3
    assert [outcome.id for outcome in outcomes] == names
    # Each job found itself in the slot table, and nothing that another had left behind.
    assert found == [("nothing", [name]) for name in names]


def test_jobs_that_follow_each_other_in_a_thread_share_nothing() -> None:
    check(look)


def test_jobs_that_follow_each_other_on_the_loop_share_nothing() -> None:
    check(look_async)


# ------------------------------------------------------------ errors outside the task function


class Leave(SystemExit):
    """Not an `Exception`: it ends a thread silently, and stops an event loop."""


def leave(*_: object) -> NoReturn:
    raise Leave


class BrokenPreparation(Execution):
    def prepare(self, claim: Claim, task: Task[..., Any]) -> NoReturn:
        raise Leave


class BrokenRun(Execution):
    def run(self, run: Run, guard: ThreadGuard) -> NoReturn:
        raise Leave

    async def run_async(self, run: Run) -> NoReturn:
        raise Leave


@pytest.mark.parametrize("broken", [BrokenPreparation, BrokenRun])
@pytest.mark.parametrize("function", [look, look_async])
def test_whatever_escapes_a_job_has_an_outcome_and_its_slot_is_freed(
    function: Callable[..., Any], broken: type[Execution]
) -> None:
    outcomes = asyncio.run(run_all(function, ["first", "second"], execution=broken))
    assert [outcome.id for outcome in outcomes] == ["first", "second"]
    for outcome in outcomes:
        assert isinstance(outcome, Retried)
        assert FailureText.unpack(outcome.error).type.endswith("Leave")


def fail(name: str) -> None:
    raise ValueError(name)


async def fail_async(name: str) -> None:
    raise ValueError(name)


@pytest.mark.parametrize("function", [fail, fail_async])
def test_a_predicate_that_leaves_costs_an_attempt(function: Callable[..., Any]) -> None:
    [outcome] = asyncio.run(run_all(function, ["job"], retry=Retry(2, retry_if=leave)))
    assert isinstance(outcome, Retried)
    assert "ValueError: job" in FailureText.unpack(outcome.error).traceback
    [outcome] = asyncio.run(run_all(function, ["job"], retry=Retry(1, retry_if=leave)))
    assert isinstance(outcome, Buried)
    assert outcome.reason is Reason.EXHAUSTED


@dataclass
class Unreadable:
    name: str

    def __getattribute__(self, attribute: str) -> Any:
        if attribute == "name":
            raise Leave
        return object.__getattribute__(self, attribute)


def show(name: str) -> Unreadable:
    return Unreadable(name)


async def show_async(name: str) -> Unreadable:
    return Unreadable(name)


@pytest.mark.parametrize("function", [show, show_async])
def test_a_result_that_leaves_is_a_bad_one(function: Callable[..., Any]) -> None:
    [outcome] = asyncio.run(run_all(function, ["job"]))
    assert isinstance(outcome, Buried)
    assert outcome.reason is Reason.BAD_RESULT


#: What a class of the user raises while it is rebuilt.
rebuilding: list[type[BaseException]] = []


@dataclass
class Unmakeable:
    name: str

    def __post_init__(self) -> None:
        raise rebuilding[-1](self.name)


def take(thing: Unmakeable) -> None:
    raise AssertionError(thing)


async def take_async(thing: Unmakeable) -> None:
    raise AssertionError(thing)


def prepare(
    function: Callable[..., Any], call: bytes, counters: Counters, **options: Any
) -> Run | Outcome:
    app = Windlass("sqlite:///:memory:")
    task: Task[..., Any] = app.task(name="look", **options)(function)
    claim = Claim(
        id="job",
        token="nonce",
        task="look",
        queue="default",
        priority=0,
        payload=pack(Envelope(task="look", call=msgspec.Raw(call))),
        counters=counters,
        created_ms=0,
    )
    return Execution(app.settings, lambda claim, progress: None, lambda task: None).prepare(
        claim, task
    )


@pytest.mark.parametrize("function", [take, take_async])
@pytest.mark.parametrize("error", [ConnectionError, MemoryError, OSError, RuntimeError, Leave])
def test_a_passing_error_while_arguments_are_rebuilt_is_a_failed_attempt(
    function: Callable[..., Any], error: type[BaseException]
) -> None:
    rebuilding.append(error)
    retry = Retry(max_attempts=2, delays=["7s"], jitter=0)
    call = b'{"args":[{"name":"x"}]}'
    outcome = prepare(function, call, Counters(attempt=1, starts=1), retry=retry)
    assert isinstance(outcome, Retried)
    assert outcome.delay_ms == 7_000
    assert FailureText.unpack(outcome.error).type.endswith(error.__name__)
    outcome = prepare(function, call, Counters(attempt=2, starts=2), retry=retry)
    assert isinstance(outcome, Buried)
    assert (outcome.reason, outcome.started) == (Reason.EXHAUSTED, True)


@pytest.mark.parametrize("error", [TypeError, ValueError, UnicodeError])
def test_arguments_that_their_own_class_refuses_are_buried_at_once(
    error: type[Exception],
) -> None:
    rebuilding.append(error)
    outcome = prepare(take, b'{"args":[{"name":"x"}]}', Counters(attempt=1, starts=1))
    assert isinstance(outcome, Buried)
    assert (outcome.reason, outcome.started) == (Reason.UNDECODABLE, False)


def test_a_call_that_fits_nobody_for_a_day_is_buried() -> None:
    rests_ms = count = 0
    while rests_ms < 24 * 3_600_000:
        outcome = prepare(look, b'{"args":[]}', Counters(1, 1, strays=count))
        assert isinstance(outcome, Unroutable)
        assert "stored for another version" in FailureText.unpack(outcome.why).message
        rests_ms += stray_delay_ms(count)
        count += 1
    outcome = prepare(look, b'{"args":[]}', Counters(1, 1, strays=count))
    assert isinstance(outcome, Buried)
    assert (outcome.reason, outcome.started) == (Reason.UNDECODABLE, False)
    message = FailureText.unpack(outcome.error).message
    assert "stored for another version of the task" in message


@pytest.mark.parametrize("spent", [0, 1])
def test_a_job_whose_process_ends_too_often_is_buried(spent: int) -> None:
    had = MAX_INTERRUPTIONS - 1 + spent
    outcome = prepare(look, b'{"args":["x"]}', Counters(1, had + 1, interruptions=had))
    if not spent:
        assert isinstance(outcome, Run)
        return
    assert isinstance(outcome, Buried)
    assert (outcome.reason, outcome.started) == (Reason.EXHAUSTED, False)
    message = FailureText.unpack(outcome.error).message
    assert message.startswith(f"{MAX_INTERRUPTIONS} interruptions: its process ended")


@pytest.mark.parametrize(
    ("counters", "words"),
    [
        (Counters(1, 4, crashes=3), "3 crashes of its process, and 3 are allowed"),
        (
            Counters(1, 5, crashes=2, interruptions=2),
            "2 crashes of its process, and an interruption before, which counts as one, and 3 are "
            "allowed",
        ),
    ],
    ids=["alone", "after an interruption"],
)
def test_the_crashes_that_are_told_add_up(counters: Counters, words: str) -> None:
    outcome = prepare(look, b'{"args":["x"]}', counters)
    assert isinstance(outcome, Buried)
    assert outcome.reason is Reason.CRASHED
    assert FailureText.unpack(outcome.error).message == words


async def cancel_others(name: str) -> None:
    """The first one lets the second be made, and cancels it before its first step."""
    if name == "first":
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if "LoopRunner" in repr(task.get_coro()):
                task.cancel()
        return
    started.append(name)


started: list[str] = []


def test_a_coroutine_that_is_cancelled_before_its_first_step_is_tried_again() -> None:
    started.clear()
    outcomes = asyncio.run(run_all(cancel_others, ["first", "second"], slots=2))
    kinds = {outcome.id: type(outcome) for outcome in outcomes}
    assert kinds == {"first": Succeeded, "second": Retried}
    assert started == []


# ---------------------------------------------------------------------------------- no more threads


def test_a_thread_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, tries = Thread.start, iter(range(100))

    def start(thread: Thread) -> None:
        if thread.name.startswith("slot") and next(tries) == 0:
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(Thread, "start", start)
    outcomes: list[Outcome] = []
    done = Event()

    def report(outcome: Outcome) -> None:
        outcomes.append(outcome)
        done.set()

    app = Windlass("sqlite:///:memory:")
    task: Task[..., Any] = app.task(name="look")(look)
    lease = Lease(table, 30_000)
    lease.confirm(monotonic())
    slot_queue = SlotQueue(lease)
    execution = Execution(app.settings, lambda claim, progress: None, lambda task: None)
    measures = RunMeasures(lambda measured: None)
    ThreadRunner(slot_queue, unlimited(), execution, report, EndLog(), measures)
    slot_queue.offer([(claim_of(task, "refused"), task)])
    assert "could not start a thread for jobs" in caplog.text
    assert [claim.id for claim in slot_queue.take_back(monotonic())] == ["refused"]
    slot_queue.offer([(claim_of(task, "again"), task)])
    assert done.wait(20)
    assert [outcome.id for outcome in outcomes] == ["again"]
