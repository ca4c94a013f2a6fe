"""Queue plans on every engine: strict tiers, and turns inside a tier."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.contract.world import World
from windlass.engine.contract import Batch, Capability, Plan, Share


def take(world: World, plan: Plan, limit: int, session: str = "worker") -> Batch:
    return world.engine.claim(session, world.nonce(), plan, limit)


def queues_of(batch: Batch) -> list[str]:
    return [claim.queue for claim in batch.claims]


def by_weight(turns: bytes) -> Plan:
    return Plan(queues=("a", "b"), shares=(Share(0, 2, turns),))


def fill(world: World, **numbers: int) -> None:
    for queue, number in numbers.items():
        for _ in range(number):  # one by one, so that every partition has some
            world.put(queue=queue)


def test_an_earlier_tier_comes_first_wherever_its_jobs_are(world: World) -> None:
    fill(world, low=12, high=3)
    plan = Plan(queues=("high", "low"))
    assert queues_of(take(world, plan, 5)) == ["high"] * 3 + ["low"] * 2
    fill(world, high=1)
    assert queues_of(take(world, plan, 2)) == ["high", "low"]


def test_each_queue_gives_as_many_as_it_has_turns(world: World) -> None:
    fill(world, a=20, b=20)
    batch = take(world, by_weight(b"\0\0\1\0\1\0"), 6)
    assert queues_of(batch) == ["a"] * 4 + ["b"] * 2


def test_turns_beyond_the_room_do_not_count(world: World) -> None:
    fill(world, first=2, a=20, b=20)
    plan = Plan(queues=("first", "a", "b"), shares=(Share(1, 2, b"\1\1\0\0\0\0"),))
    assert queues_of(take(world, plan, 5)) == ["first", "first", "a", "b", "b"]


def test_what_one_queue_lacks_the_others_fill(world: World) -> None:
    fill(world, a=20, b=1)
    assert queues_of(take(world, by_weight(b"\1\1\1\0"), 6)) == ["a"] * 5 + ["b"]
    assert queues_of(take(world, by_weight(b"\1\1\1\1"), 4)) == ["a"] * 4


def test_a_tier_behind_a_shared_one_has_the_rest(world: World) -> None:
    fill(world, a=1, b=1, last=5)
    plan = Plan(queues=("a", "b", "last"), shares=(Share(0, 2, b"\0\0\0\0"),))
    assert queues_of(take(world, plan, 4)) == ["a", "b", "last", "last"]


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_of_each_queue_the_best_are_taken(world: World) -> None:
    fill(world, a=3, b=3)
    urgent = [world.put(queue=queue, priority=50) for queue in ("b", "a")]
    batch = take(world, by_weight(b"\0\1"), 2)
    assert Counter(claim.id for claim in batch.claims) == Counter(urgent)


def test_a_claim_by_turns_is_repeated_as_it_was(world: World) -> None:
    fill(world, a=9, b=9)
    nonce, plan = world.nonce(), by_weight(b"\0\1\0\1\1")
    first = world.engine.claim("worker", nonce, plan, 5)
    assert world.engine.claim("worker", nonce, plan, 5) == first
    assert len(first.claims) == 5


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_expired_jobs_do_not_use_up_turns(world: World) -> None:
    fill(world, b=5)
    for _ in range(4):
        world.put(queue="a", expires_in_ms=0, priority=1)
    fill(world, a=5)
    assert queues_of(take(world, by_weight(b"\0\0\0\1"), 4)) == ["a"] * 3 + ["b"]
