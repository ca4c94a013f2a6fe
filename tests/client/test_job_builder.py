"""The prepared part of an enqueue: what calls with the same options share, and when it changes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from windlass import Retry, Task, Tasks, Unique, Windlass
from windlass.engine.contract import NewJob
from windlass.middleware import EnqueueCall


def pay(cents: int, to: str = "shop") -> None: ...


@pytest.fixture
def task(app: Windlass) -> Task[..., None]:
    return app.task(name="pay")(pay)


def job_of(task: Task[..., Any]) -> NewJob:
    return task.bind(1).new_job()


def test_a_task_prepares_once_and_a_copy_on_its_own(task: Task[..., None]) -> None:
    assert task.builder is task.builder
    copy = task.using(queue="mail")
    assert copy.builder is not task.builder
    assert (job_of(task).queue, job_of(copy).queue) == ("default", "mail")
    assert task.using() is task


def test_a_copy_made_before_the_group_joins_is_prepared_for_the_app(tmp_path: Any) -> None:
    group = Tasks(prefix="shop", queue="mail")
    task = group.task(name="pay")(pay)
    copy, bound = task.using(priority=3), task.bind(1)
    with Windlass(f"sqlite:///{tmp_path}/jobs.db", routes={"shop.*": "routed"}) as app:
        app.include(group)
        assert [job_of(one).queue for one in (task, copy)] == ["routed", "routed"]
        assert (job_of(copy).priority, bound.new_job().task) == (3, "shop.pay")


@pytest.mark.parametrize(
    ("options", "is_bare"),
    [
        ({}, True),
        ({"queue": "mail", "priority": 3, "requires": "gpu"}, True),
        ({"run_after": 60, "expires": timedelta(days=1), "idempotency_key": "a"}, True),
        ({"timeout": 60}, False),
        ({"result_ttl": 60}, False),
        ({"retry": Retry(max_attempts=2)}, False),
        ({"headers": {"a": "b"}}, False),
    ],
)
def test_a_call_has_an_envelope_only_for_what_the_record_lacks(
    task: Task[..., None], options: dict[str, Any], is_bare: bool
) -> None:
    payload = job_of(task.using(**options)).payload
    assert (payload == b'{"args":[1]}') == is_bare
    assert payload.startswith(b'{"version":1,') != is_bare


def test_options_of_the_decorator_are_not_stored(app: Windlass) -> None:
    task = app.task(name="pay", timeout=60, result_ttl=60, retry=Retry(max_attempts=2))(pay)
    assert job_of(task).payload == b'{"args":[1]}'


def test_every_option_reaches_the_job(task: Task[..., None]) -> None:
    job = job_of(
        task.using(
            queue="mail",
            requires="gpu",
            priority=-3,
            run_after=60,
            expires=timedelta(minutes=2),
            idempotency_key="a",
        )
    )
    assert (job.task, job.queue, job.priority) == ("pay", "mail+gpu", -3)
    assert (job.run_after_ms, job.run_in_ms) == (None, 60_000)
    assert (job.expires_ms, job.expires_in_ms) == (None, 120_000)
    assert job.idempotency_key == "a"
    assert len(job.fingerprint) == 32
    assert job.unique is None


def test_a_unique_key_is_made_for_each_call(app: Windlass) -> None:
    task = app.task(name="pay", unique=Unique(by=["cents"]))(pay)
    keys = [task.bind(cents).new_job().unique for cents in (1, 2, 1)]
    assert keys[0] is not None
    assert keys[0] == keys[2] != keys[1]


def test_middleware_that_comes_later_is_used(app: Windlass, task: Task[..., None]) -> None:
    task.enqueue(1)

    @app.around_enqueue
    def tag(call: EnqueueCall) -> Iterator[None]:
        call.headers["a"] = "b"
        yield

    jobs = [task.enqueue(2), *task.enqueue_many([(3,), (4,)])]
    assert [job.info().headers for job in jobs] == [{"a": "b"}] * 3


def test_runs_of_calls_keep_the_order_of_all_calls(app: Windlass, task: Task[..., None]) -> None:
    other = app.task(name="other")(pay)
    mixed = [task.bind(1), task.bind(2), other.bind(3), task.bind(4), task.using(queue="a").bind(5)]
    jobs = app.enqueue_many(mixed)
    payloads = [record.payload for record in app.engine.get([job.id for job in jobs]) if record]
    assert payloads == [b'{"args":[%d]}' % number for number in range(1, 6)]
    assert [job.task for job in jobs] == ["pay", "pay", "other", "pay", "pay"]
