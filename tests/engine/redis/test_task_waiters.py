"""Registrations of sessions that wait for jobs of some tasks only, in the server."""

from __future__ import annotations

import pytest

from tests.engine.conftest import OpenRedis, new_job
from tests.redis_server import RedisServer
from windlass.engine.contract import Plan, QueueChange, Waiter, WakeUp
from windlass.engine.redis import keys
from windlass.engine.redis.engine import RedisEngine
from windlass.engine.redis.wakeup import RedisWakeup

NAMESPACE = "tasks"


@pytest.fixture
def engine(own_server: RedisServer, open_redis: OpenRedis) -> RedisEngine:
    return open_redis(own_server.url(namespace=NAMESPACE))


def registered(server: RedisServer) -> int:
    """Count the entries of the index of registrations, without the sentinel."""
    reply = server.tell("ZCARD", keys.key(NAMESPACE, 0, "idle"))
    return int(reply.removeprefix(b":")) - 1


def for_tasks(number: int) -> list[Waiter]:
    return [Waiter(f"session-{at}", Plan(tasks=(f"task-{at}", "two"))) for at in range(number)]


@pytest.mark.parametrize("number", [1, 5, 30])
def test_a_wake_up_of_another_session_leaves_them_registered(
    own_server: RedisServer, open_redis: OpenRedis, engine: RedisEngine, number: int
) -> None:
    others = [Waiter(f"other-{at}", Plan(queues=(f"queue-{at}",))) for at in range(number)]
    waiters = [*for_tasks(number), *others, Waiter("any", Plan())]
    assert engine.wait(waiters, 1) == []
    assert registered(own_server) == 3 * number + 1
    open_redis(own_server.url(namespace=NAMESPACE)).put([new_job()])
    assert registered(own_server) == 3 * number
    assert engine.wait(waiters, 1_000) == [WakeUp("any")]
    assert engine.wait([], 1) == []
    assert registered(own_server) == 0


def test_as_many_are_told_of_ready_jobs_as_there_are_jobs_of_their_tasks(
    engine: RedisEngine,
) -> None:
    plan = Plan(queues=("q",), tasks=("mine", "also"))
    tasks = ("t", "mine", "t", "also", "t")
    engine.put([new_job(at, task=task) for at, task in enumerate(tasks)])
    waiters = [Waiter(f"session-{at}", plan) for at in range(5)]
    assert len(engine.wait(waiters, 1_000)) == 2


def test_an_ended_registration_is_removed_when_a_job_of_its_task_comes(
    own_server: RedisServer, open_redis: OpenRedis, engine: RedisEngine
) -> None:
    """A killed worker leaves its registration behind. Its channel has no subscriber."""
    assert engine.wait([Waiter("session", Plan(tasks=("t",)))], 1) == []
    engine._wakeup.close()
    putting = open_redis(own_server.url(namespace=NAMESPACE))
    putting.put([new_job(1), new_job(2)])
    assert registered(own_server) == 0


def test_a_resumed_queue_makes_each_worker_look_once(
    own_server: RedisServer, open_redis: OpenRedis, engine: RedisEngine
) -> None:
    changing = open_redis(own_server.url(namespace=NAMESPACE))
    changing.change_queue("q", QueueChange(paused=True))
    assert engine.wait(for_tasks(20), 1) == []
    changing.change_queue("q", QueueChange(paused=False))
    here = engine._wakeup._here.get()
    assert here.receive(here.renew_at + 5) == [b"~"]


def test_a_plan_without_sessions_is_forgotten(engine: RedisEngine) -> None:
    """Remote workers may have any number of plans in the course of time."""
    wakeup: RedisWakeup = engine._wakeup
    for at in range(5):
        assert engine.wait([Waiter("session", Plan(tasks=(f"task-{at}",)))], 1) == []
    assert engine.wait([Waiter("any", Plan())], 1) == []
    assert engine.wait([Waiter("any", Plan(queues=("q",)))], 1) == []
    assert len(wakeup._here.get()._numbers) <= 2
