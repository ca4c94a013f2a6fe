"""Unique tasks for callers, and the recipes of the guide under a clock that tests move."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from tests.app.hand import Hand
from windlass import DuplicateJob, IdempotencyConflict, InvalidTask, State, Task, Unique, Windlass
from windlass.core.serialization.codec import decode_json
from windlass.core.serialization.envelope import unpack

SECOND = 1_000
MINUTE = 60 * SECOND


def declare(app: Windlass, unique: Unique) -> Task[..., Any]:
    @app.task(name="tasks.work", unique=unique)
    def work(user: int, text: str = "", options: dict[str, int] | None = None) -> str:
        return text

    return work


def stored_call(app: Windlass, id: str) -> Any:
    (record,) = app.engine.get([id])
    assert record is not None
    return decode_json(bytes(unpack(record.payload, record.task).call))


def test_the_existing_job_is_given(app: Windlass, hand: Hand) -> None:
    work = declare(app, Unique())
    first = work.enqueue(1)
    again = work.using(priority=9, run_after="1h").enqueue(user=1, text="")
    assert (again.id, first.created, again.created) == (first.id, True, False)
    assert again.info().priority == 0
    assert work.enqueue(2).created
    hand.succeed("done")
    assert work.enqueue(1).created
    assert again.result(timeout=1) == "done"


def test_the_key_of_chosen_parameters(app: Windlass) -> None:
    work = declare(app, Unique(by=["user", "options"]))
    first = work.enqueue(1, "a", {"x": 1, "y": 2})
    assert work.enqueue(1, "b", {"y": 2, "x": 1}).id == first.id
    assert work.enqueue(1, "a").created


def test_a_duplicate_is_refused(app: Windlass) -> None:
    work = declare(app, Unique(on_conflict="raise"))
    first = work.enqueue(1)
    with pytest.raises(DuplicateJob, match=f"{first.id} of task tasks.work holds") as caught:
        work.enqueue(1)
    assert (caught.value.task, caught.value.job_id) == ("tasks.work", first.id)


def test_the_call_is_replaced(app: Windlass, hand: Hand) -> None:
    work = declare(app, Unique(by="user", on_conflict="replace"))
    first = work.using(run_after="1h").enqueue(1, "old")
    again = work.using(priority=7, result_ttl="1h").enqueue(1, "new")
    assert (again.id, again.created) == (first.id, False)
    assert stored_call(app, first.id) == {"args": [1, "new"]}
    info = first.info()
    assert (info.state, info.priority, info.due_at) == (State.READY, 7, None)
    hand.take()
    with pytest.raises(DuplicateJob, match="only while it waits"):
        work.enqueue(1, "newer")


@pytest.mark.parametrize("on_conflict", ["return", "replace"])
def test_many_at_once(app: Windlass, on_conflict: Literal["return", "replace"]) -> None:
    work = declare(app, Unique(by="user", on_conflict=on_conflict))
    jobs = work.enqueue_many([(1, "a"), (2, "b"), work.bind(1, "c"), (1, "d")])
    assert [job.created for job in jobs] == [True, True, False, False]
    assert len({job.id for job in jobs}) == 2
    last = "d" if on_conflict == "replace" else "a"
    assert stored_call(app, jobs[0].id) == {"args": [1, last]}


def test_many_of_which_some_are_refused(app: Windlass) -> None:
    work = declare(app, Unique(on_conflict="raise"))
    with pytest.raises(DuplicateJob) as caught:
        work.enqueue_many([(1,), (1,), (2,)])
    assert "2 jobs were enqueued before this." in caught.value.__notes__
    assert app.engine.stats().queues == {"default": {State.READY: 2}}


def test_coroutines_share_a_batch(app: Windlass) -> None:
    work = declare(app, Unique(by="user"))

    async def enqueue_all() -> list[Any]:
        single = [work.aenqueue(number % 3, str(number)) for number in range(30)]
        many = work.aenqueue_many([(0,), (1,), (7,)])
        return [*await asyncio.gather(*single), *await many]

    jobs = asyncio.run(enqueue_all())
    assert len({job.id for job in jobs}) == sum(job.created for job in jobs) == 4


def test_the_idempotency_key_counts_first(app: Windlass, hand: Hand) -> None:
    work = declare(app, Unique(by="user"))
    first = work.using(idempotency_key="i").enqueue(1, "a")
    hand.succeed("done")
    assert work.using(idempotency_key="i").enqueue(1, "a").id == first.id
    with pytest.raises(IdempotencyConflict):
        work.using(idempotency_key="i").enqueue(1, "b")
    assert work.enqueue(1, "a").created


def test_what_is_seen_of_a_key(app: Windlass) -> None:
    work = declare(app, Unique(by="user"))
    one, two = work.enqueue(1).info(), work.enqueue(2).info()
    assert one.unique_key != two.unique_key
    assert len(one.unique_key or "") == 32
    assert app.task(plain).enqueue().info().unique_key is None


def plain() -> None:
    """A task without a key."""


def test_a_retry_is_refused_while_another_holds_the_key(app: Windlass, hand: Hand) -> None:
    work = declare(app, Unique())
    dead = work.enqueue(1)
    hand.bury(ValueError("no"))
    other = work.enqueue(1)
    with pytest.raises(DuplicateJob, match="was not changed") as caught:
        dead.retry()
    assert (caught.value.job_id, caught.value.retried) == (other.id, dead.id)
    with pytest.raises(DuplicateJob, match=other.id):
        asyncio.run(dead.aretry())
    hand.succeed("")
    assert dead.retry()
    assert not work.enqueue(1).created


def test_a_dead_job_holds_its_key_until_success(app: Windlass, hand: Hand) -> None:
    work = declare(app, Unique("success"))
    dead = work.enqueue(1)
    hand.bury(ValueError("no"))
    assert work.enqueue(1).id == dead.id
    dead.retry()
    hand.succeed("")
    assert work.enqueue(1).created


def test_names_are_checked_at_the_declaration(app: Windlass) -> None:
    with pytest.raises(InvalidTask, match=r"no parameter 'usr', only user, text, options"):
        declare(app, Unique(by="usr"))
    wrong: dict[str, Any] = {"unique": "end"}
    with pytest.raises(TypeError, match=r"unique must be a windlass\.Unique"):
        app.task(**wrong)
    assert not app.tasks


def test_the_context_is_no_part_of_the_key(app: Windlass) -> None:
    with pytest.raises(InvalidTask, match="no parameter 'ctx', only user"):

        @app.task(takes_context=True, unique=Unique(by="ctx"))
        def work(ctx: object, user: int) -> None: ...


# ------------------------------------------------------------------------------------------ recipes


def pass_time(app: Windlass, milliseconds: int) -> None:
    app.engine.clock_offset_ms += milliseconds


def test_debounce(app: Windlass, hand: Hand) -> None:
    """Each call puts the start off; what runs is the last one."""
    work = declare(app, Unique("start", by="user", on_conflict="replace"))
    calm = work.using(run_after="5s")
    ids = set()
    for number in range(4):
        ids.add(calm.enqueue(1, str(number)).id)
        pass_time(app, 4 * SECOND)
        assert not hand.find()
    pass_time(app, 1 * SECOND)
    (claim,) = hand.find()
    assert {claim.id} == ids
    assert stored_call(app, claim.id) == {"args": [1, "3"]}
    assert calm.enqueue(1, "next").created


def test_throttle(app: Windlass, hand: Hand) -> None:
    """One in a period, also when it has ended long before."""
    work = declare(app, Unique(period="10m", by="user"))
    first = work.enqueue(1, "a")
    hand.succeed("")
    pass_time(app, 9 * MINUTE)
    assert work.enqueue(1, "b").id == first.id
    assert work.enqueue(2, "b").created
    pass_time(app, 1 * MINUTE)
    assert work.enqueue(1, "c").created


def test_keep_the_latest(app: Windlass, hand: Hand) -> None:
    """While one runs another may wait, and is the latest."""
    work = declare(app, Unique("start", by="user", on_conflict="replace"))
    running = work.enqueue(1, "0")
    hand.take()
    waiting = [work.enqueue(1, str(number)) for number in range(1, 4)]
    assert {job.id for job in waiting} == {waiting[0].id} != {running.id}
    assert stored_call(app, waiting[0].id) == {"args": [1, "3"]}
    assert app.engine.stats().queues == {"default": {State.READY: 1, State.RUNNING: 1}}


# ---------------------------------------------------------------------------------- equal arguments


@dataclass
class Mail:
    to: str
    subject: str = "hello"
    tags: list[str] = field(default_factory=list)


def typed_in(task: Task[..., Any]) -> Mail:
    """A mail as a worker, or the command line, reads it from JSON that leaves its defaults out."""
    (mail,), _ = task.codecs["json"].decode(b'{"args":[{"to":"a@b"}]}')
    assert isinstance(mail, Mail)
    return mail


def test_equal_objects_hold_one_key(app: Windlass) -> None:
    @app.task(unique=Unique())
    def send(mail: Mail, weight: float = 1) -> None: ...

    first = send.enqueue(typed_in(send))
    assert send.enqueue(Mail("a@b")).id == first.id
    assert send.enqueue(Mail("a@b"), 1.0).id == first.id
    assert send.enqueue(Mail("a@b", "bye")).created
    assert stored_call(app, first.id) == {"args": [{"to": "a@b", "subject": "hello", "tags": []}]}


def test_equal_objects_are_no_conflict_of_one_idempotency_key(app: Windlass) -> None:
    @app.task
    def send(mail: Mail, weights: dict[str, float] | None = None) -> None: ...

    keyed = send.using(idempotency_key="k")
    first = keyed.enqueue(typed_in(send), {"a": 1, "b": 2})
    assert keyed.enqueue(Mail("a@b"), {"b": 2.0, "a": 1.0}).id == first.id
    with pytest.raises(IdempotencyConflict):
        keyed.enqueue(Mail("a@b"), {"a": 1, "b": 3})
    with pytest.raises(IdempotencyConflict):
        keyed.enqueue(Mail("a@b", "bye"), {"a": 1, "b": 2})
