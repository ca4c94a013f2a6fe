"""Methods for threads and for coroutines, made of the same steps."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from windlass import EngineUnavailable, Job, Task, Windlass
from windlass.access_tokens import AccessTokens
from windlass.audit_log import AuditLog
from windlass.dead_letters import DeadLetters
from windlass.engine.contract import Engine
from windlass.jobs import Jobs
from windlass.operations.operations import Operations
from windlass.queue import Queue
from windlass.schedules import Schedules
from windlass.twins import act, arun

#: Methods that make no call to the engine, and those for other parts of windlass.
WITHOUT_ENGINE: dict[type, set[str]] = {
    DeadLetters: {"retrying", "discarding", "replacing_call"},
    Job: {"ending"},
    Task: {"using", "sent_by", "bind", "job", "entry", "unfit_for_schedules"},
    Windlass: {
        *("include", "add_tasks", "task_named", "queue", "job", "queue_for", "name_of", "worker"),
        *("around_run", "around_enqueue", "on_alert", "declared_schedules", "decode_result"),
        *("find_task", "on_success", "on_retry", "on_dead"),
        *("close", "wrap_engine", "replace_engine"),
    },
}
KINDS = [
    *(Windlass, Task, Job, Queue, Schedules, DeadLetters, AccessTokens, AuditLog, Operations),
]
TWINS = [
    (kind, name)
    for kind in (Job, Jobs, Schedules, DeadLetters, Queue, AccessTokens, AuditLog, Operations)
    for name in vars(kind)
    if f"a{name}" in vars(kind) and (kind, name) not in ((DeadLetters, "list"), (Jobs, "list"))
]


def test_they_are_found() -> None:
    assert len(TWINS) == 43


@pytest.mark.parametrize("kind", KINDS)
def test_every_public_method_that_calls_the_engine_has_a_twin(kind: type) -> None:
    methods = {name for name, one in vars(kind).items() if inspect.isroutine(one)}
    public = {name for name in methods if not name.startswith("_")}
    alone = {name for name in public if not {f"a{name}", name[1:]} & public}
    assert alone == WITHOUT_ENGINE.get(kind, set())


@pytest.mark.parametrize(("kind", "name"), TWINS)
def test_both_have_the_signature_and_a_docstring(kind: type, name: str) -> None:
    blocking, awaited = getattr(kind, name), getattr(kind, f"a{name}")
    assert inspect.signature(blocking) == inspect.signature(awaited)
    assert "Steps" not in str(inspect.signature(blocking))
    assert blocking.__doc__
    assert awaited.__doc__ == f"`{name}`, for coroutines."
    assert (awaited.__name__, awaited.__qualname__) == (f"a{name}", f"{kind.__name__}.a{name}")
    assert inspect.iscoroutinefunction(awaited)
    assert not inspect.iscoroutinefunction(blocking)


class Actions:
    """Actions of coroutines that wait together for the thread of the batcher."""

    def __init__(self, app: Windlass) -> None:
        self.app = app
        self.begun: list[str] = []

    def run(self, *names: str) -> list[object]:
        return asyncio.run(self._gather(names))

    async def _gather(self, names: tuple[str, ...]) -> list[object]:
        started, gate = threading.Event(), threading.Event()

        def hold(_engine: Engine) -> None:
            started.set()
            gate.wait(20)

        first = asyncio.create_task(arun(self.app, act(hold)))
        await asyncio.to_thread(started.wait, 20)
        calls: list[Coroutine[Any, Any, object]]
        calls = [arun(self.app, act(self._act, name)) for name in names]
        calls.append(self.app.task_named("work").aenqueue())
        others = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0)  # all of them are pending from here on
        gate.set()
        await first
        return await asyncio.gather(*others, return_exceptions=True)

    def _act(self, _engine: Engine, name: str) -> str:
        self.begun.append(name)
        if name == "wrong":
            raise TypeError(name)
        if name == "away":
            raise EngineUnavailable(name, location="here", seconds=1)
        return name


def test_an_error_of_one_action_repeats_no_other(app: Windlass) -> None:
    actions = Actions(app)
    one, error, two, job = actions.run("one", "wrong", "two")
    assert (one, two, actions.begun) == ("one", "two", ["one", "wrong", "two"])
    assert isinstance(error, TypeError)
    assert isinstance(job, Job)


def test_an_engine_that_is_away_is_tried_once_for_all(app: Windlass) -> None:
    actions = Actions(app)
    outcomes = actions.run("away", "two", "three")
    assert actions.begun == ["away"]
    assert {type(one) for one in outcomes} == {EngineUnavailable}, "also of the enqueue"
    assert len(set(map(id, outcomes))) == 4, "each has its own traceback"


def test_actions_before_an_outage_keep_their_results(app: Windlass) -> None:
    actions = Actions(app)
    one, two, three, job = actions.run("one", "away", "three")
    assert (one, actions.begun) == ("one", ["one", "away"])
    assert isinstance(two, EngineUnavailable)
    assert isinstance(three, EngineUnavailable)
    assert isinstance(job, Job)
