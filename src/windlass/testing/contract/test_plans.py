"""Test plans: tiers, turns inside a tier, paused queues, purged queues, labels, tasks."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep
from typing import Any

import pytest

from windlass.core.ids import new_id, partition_of
from windlass.core.queues.labels import queue_of
from windlass.core.states import State
from windlass.engine.contract import (
    BITE,
    MAX_PASSED_OVER,
    Batch,
    Capability,
    Engine,
    Filter,
    NewJob,
    Placed,
    Plan,
    PutCode,
    QueueChange,
    QueueRecord,
    Released,
    Share,
    Succeeded,
    Unroutable,
    Verdict,
    Waiter,
    WakeUp,
)
from windlass.testing.contract.test_wait import AT_ONCE_S, fastest
from windlass.testing.contract.world import World, claim_jobs, ids_of


def take(world: World, plan: Plan, limit: int, session: str = "worker") -> Batch:
    return claim_jobs(world.engine, session, world.nonce(), plan, limit)


def queues_of(batch: Batch) -> list[str]:
    return [claim.queue for claim in batch.claims]


def by_weight(turns: bytes) -> Plan:
    return Plan(queues=("a", "b"), shares=(Share(0, 2, turns),))


def fill(world: World, **numbers: int) -> None:
    for queue, number in numbers.items():
        for _ in range(number):  # put jobs one by one, so that every partition gets some
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
    first = claim_jobs(world.engine, "worker", nonce, plan, 5)
    assert claim_jobs(world.engine, "worker", nonce, plan, 5) == first
    assert len(first.claims) == 5


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_expired_jobs_do_not_use_up_turns(world: World) -> None:
    fill(world, b=5)
    for _ in range(4):
        world.put(queue="a", expires_in_ms=0, priority=1)
    fill(world, a=5)
    assert queues_of(take(world, by_weight(b"\0\0\0\1"), 4)) == ["a"] * 3 + ["b"]


# ----------------------------------------------------------------------------------------- pausing


def pause(world: World, *queues: str) -> None:
    for queue in queues:
        world.engine.change_queue(queue, QueueChange(paused=True))


def resume(world: World, queue: str) -> None:
    world.engine.change_queue(queue, QueueChange(paused=False))


@pytest.mark.parametrize("plan", [Plan(), Plan(queues=("a",)), Plan(queues=("a", "b"))])
def test_nothing_is_claimed_from_a_paused_queue(world: World, plan: Plan) -> None:
    fill(world, a=4)
    pause(world, "a")
    assert take(world, plan, 10) == Batch()
    resume(world, "a")
    assert queues_of(take(world, plan, 10)) == ["a"] * 4


def test_other_queues_are_served_meanwhile(world: World) -> None:
    fill(world, a=2, b=4, c=2)
    pause(world, "a", "c")
    assert queues_of(take(world, Plan(), 10)) == ["b"] * 4
    fill(world, b=3)
    assert queues_of(take(world, by_weight(b"\0\0\0"), 10)) == ["b"] * 3


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_jobs_keep_their_places_in_a_pause(world: World) -> None:
    first, second = world.put(queue="a"), world.put(queue="a")
    claim = take(world, Plan(), 1).claims[0]
    pause(world, "a")
    third = world.put(queue="a")
    world.finish(Released(id=claim.id, token=claim.token, started=False))
    assert take(world, Plan(), 10).claims == ()
    resume(world, "a")
    assert [claim.id for claim in take(world, Plan(), 10).claims] == [first, second, third]


def test_delayed_jobs_become_due_in_a_pause_and_stay(world: World) -> None:
    id = world.put(queue="a", run_in_ms=1_000)
    pause(world, "a")
    world.advance(1_000)
    batch = take(world, Plan(), 10)
    assert (batch.claims, batch.next_in_ms) == ((), None)
    assert world.get(id).state is State.READY
    assert world.engine.stats().oldest_ready_ms == {"a": 0}


def test_what_runs_in_a_paused_queue_can_end(world: World) -> None:
    world.put(queue="a")
    claim = take(world, Plan(), 1).claims[0]
    pause(world, "a")
    assert world.finish(Succeeded(id=claim.id, token=claim.token)) is Verdict.OK


def test_suspects_in_a_paused_queue_are_left_alone(world: World) -> None:
    world.put(queue="a")
    claim = take(world, Plan(), 1).claims[0]
    world.engine.close("worker", [claim.id], "killed")
    pause(world, "a")
    assert not take(world, Plan(), 1, "other").suspects
    assert take(world, Plan(suspects=True), 1, "other").claims == ()
    resume(world, "a")
    assert take(world, Plan(), 1, "other").suspects
    assert len(take(world, Plan(suspects=True), 1, "other").claims) == 1


def test_settings_are_seen_by_all_and_after_a_restart(world: World) -> None:
    pause(world, "b", "a")
    expected = [QueueRecord(queue="a", paused=True), QueueRecord(queue="b", paused=True)]
    assert world.open().queues() == expected
    if Capability.DURABLE in world.variant.capabilities:
        world.reopen()
        assert world.engine.queues() == expected
    resume(world, "a")
    resume(world, "unknown")
    assert world.engine.queues() == expected[1:]
    resume(world, "b")
    assert world.engine.queues() == []


def test_a_resume_wakes_who_waits(engine: Engine) -> None:
    engine.put([NewJob(id="id", task="t", queue="a", payload=b"")])
    engine.change_queue("a", QueueChange(paused=True))
    waiters = [Waiter("worker", Plan())]
    with ThreadPoolExecutor(1) as pool:

        def measure() -> float:
            """A resume may come before the wait, or while the wait looks for work."""
            waiting = pool.submit(engine.wait, waiters, 20_000)
            sleep(0.15)
            begun = monotonic()
            engine.change_queue("a", QueueChange(paused=False))
            waiting.result(10)
            took_s = monotonic() - begun
            engine.change_queue("a", QueueChange(paused=True))
            return took_s

        assert fastest(measure) < AT_ONCE_S
    engine.change_queue("a", QueueChange(paused=False))
    assert len(claim_jobs(engine, "worker", "nonce", Plan(), 1).claims) == 1


# ----------------------------------------------------------------------------------------- purging


def purge(world: World, queue: str) -> list[int]:
    """Purge a queue; return the number of jobs that each batch removed."""
    emptied = world.engine.purge(queue)
    numbers = [emptied.number]
    while emptied.cursor is not None:
        emptied = world.engine.purge(queue, emptied.cursor)
        numbers.append(emptied.number)
    return numbers


def test_a_purge_removes_what_waits_and_nothing_else(world: World) -> None:
    world.put(queue="a", idempotency_key="key")
    held = [claim.id for claim in take(world, Plan(), 1).claims]
    kept = [world.put(queue="b"), world.put(queue="b", run_in_ms=1_000), world.put(queue="ab")]
    fill(world, a=5)
    world.put(queue="a", run_in_ms=9_000)
    world.put(queue="a", priority=7, idempotency_key="other")
    assert sum(purge(world, "a")) == 7
    assert sorted(world.ids()) == sorted([*held, *kept])
    assert world.engine.check() == []
    # The idempotency key of a removed job is free.
    again = world.new(queue="a", idempotency_key="other", fingerprint="new")
    assert world.engine.put([again]) == [Placed(again.id, PutCode.CREATED)]


def test_a_purge_goes_in_bounded_bites(world: World) -> None:
    world.put_many(BITE + 50, queue="a")
    world.put_many(BITE + 50, queue="a", run_in_ms=1_000)
    world.put_many(50, queue="b", run_in_ms=500)
    numbers = purge(world, "a")
    assert sum(numbers) == 2 * BITE + 100
    assert max(numbers) <= BITE
    assert len(world.ids()) == 50
    assert world.engine.check() == []


def test_a_purge_takes_suspects_and_those_that_nobody_knew(world: World) -> None:
    suspect, stray = world.put(queue="a"), world.put(queue="a")
    claims = {claim.id: claim for claim in take(world, Plan(), 2).claims}
    world.finish(Unroutable(id=stray, token=claims[stray].token))
    world.engine.close("worker", [suspect], "killed")
    assert sum(purge(world, "a")) == 2
    assert world.ids() == []
    assert world.engine.check() == []


# ------------------------------------------------------------------------------------------ ageing

PERIOD_MS = 60_000


def age(world: World, queue: str, period_ms: int = PERIOD_MS) -> None:
    world.engine.change_queue(queue, QueueChange(ageing_ms=period_ms))


def drain(world: World, plan: Plan | None = None) -> list[str]:
    return [claim.id for claim in take(world, plan or Plan(), 100).claims]


def test_without_ageing_priority_is_strict(world: World) -> None:
    world.put(queue="a")
    world.advance(1_000 * PERIOD_MS)
    high = world.put(queue="a", priority=1)
    assert drain(world)[0] == high


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_a_level_of_priority_is_worth_a_period_of_waiting(world: World) -> None:
    age(world, "a")
    low = world.put(queue="a")
    world.advance(9 * PERIOD_MS)
    in_time = world.put(queue="a", priority=10)
    world.advance(2 * PERIOD_MS)
    late = world.put(queue="a", priority=10)
    assert drain(world) == [in_time, low, late]


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_of_equal_priority_the_first_stays_first_whatever_the_clock_does(world: World) -> None:
    age(world, "a")
    ids = [world.put(queue="a")]
    for by_ms in (PERIOD_MS, -10 * PERIOD_MS, 5 * PERIOD_MS, -1, 90 * PERIOD_MS):
        world.advance(by_ms)
        ids.append(world.put(queue="a"))
    age(world, "a", 0)
    ids.append(world.put(queue="a"))
    age(world, "a", 2 * PERIOD_MS)
    world.advance(3 * PERIOD_MS)
    ids.append(world.put(queue="a"))
    assert drain(world) == ids


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_jobs_that_wait_when_ageing_begins_come_first(world: World) -> None:
    world.advance(50 * PERIOD_MS)
    waiting = world.put(queue="a", priority=-5)
    age(world, "a")
    world.advance(20 * PERIOD_MS)
    new = world.put(queue="a", priority=5)
    assert drain(world) == [waiting, new]


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_a_job_that_was_late_counts_from_when_it_is_ready(world: World) -> None:
    age(world, "a")
    delayed = world.put(queue="a", run_in_ms=30 * PERIOD_MS)
    world.advance(20 * PERIOD_MS)
    high = world.put(queue="a", priority=8)
    world.advance(11 * PERIOD_MS)
    assert drain(world) == [high, delayed]


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_queues_that_age_and_others_are_served_as_one(world: World) -> None:
    """Check a worker without a plan: ageing puts a queue neither first nor last."""
    age(world, "a")
    world.advance(100 * PERIOD_MS)
    aged, plain = world.put(queue="a"), world.put(queue="b")
    urgent = world.put(queue="a", priority=1)
    assert drain(world) == [urgent, aged, plain]


def test_what_is_given_back_keeps_its_rank_and_its_priority(world: World) -> None:
    age(world, "a")
    world.advance(7 * PERIOD_MS)
    id = world.put(queue="a", priority=3)
    claim = take(world, Plan(), 1).claims[0]
    assert claim.priority == 3
    world.finish(Released(id=id, token=claim.token, started=False))
    assert world.get(id).priority == 3
    (again,) = take(world, Plan(), 1).claims
    assert (again.id, again.priority) == (id, 3)
    assert world.engine.check() == []


def test_ageing_is_listed_and_can_be_ended(world: World) -> None:
    age(world, "a")
    assert world.engine.queues() == [QueueRecord(queue="a", ageing_ms=PERIOD_MS)]
    world.advance(5 * PERIOD_MS)
    world.put(queue="a")
    pause(world, "a")
    age(world, "a", 0)
    assert world.engine.queues() == [QueueRecord(queue="a", paused=True)]
    resume(world, "a")
    assert world.engine.queues() == []


# ------------------------------------------------------------------------------------------ labels


@pytest.mark.parametrize("queues", [(), ("a",), ("a", "b")])
def test_a_job_is_taken_only_by_who_has_all_of_its_labels(
    world: World, queues: tuple[str, ...]
) -> None:
    one, two = world.put(queue="a+gpu"), world.put(queue="a+gpu+large")
    for labels in ((), ("large",), ("gp", "u")):
        assert take(world, Plan(queues=queues, labels=labels), 5) == Batch()
    assert drain(world, Plan(queues=queues, labels=("gpu",))) == [one]
    assert drain(world, Plan(queues=queues, labels=("other", "large", "gpu"))) == [two]


@pytest.mark.needs(Capability.STRICT_ORDER)
@pytest.mark.parametrize("queues", [(), ("a",)])
def test_a_worker_with_labels_serves_all_lines_in_one_order(
    world: World, queues: tuple[str, ...]
) -> None:
    order = [
        world.put(queue=line, priority=priority)
        for line, priority in (("a", 2), ("a+gpu", 1), ("a", 0), ("a+gpu", 0), ("a", 0))
    ]
    world.put(queue="a+other", priority=9)
    assert drain(world, Plan(queues=queues, labels=("gpu",))) == order


def test_nobody_waits_for_what_he_cannot_take(engine: Engine) -> None:
    """Wake no worker that lacks labels: it would find nothing and look again at once."""
    engine.put([NewJob(id="id", task="t", queue="a+gpu", payload=b"")])
    for plan in (Plan(), Plan(queues=("a",)), Plan(labels=("other",))):
        begun = monotonic()
        while monotonic() - begun < 0.05:
            assert engine.wait([Waiter("worker", plan)], 50) == []
    able = [Waiter("worker", Plan(labels=("gpu",)))]
    assert engine.wait(able, 20_000) == [WakeUp("worker")]


def test_a_name_that_only_begins_alike_is_another_queue(world: World) -> None:
    fill(world, ab=1)
    world.put(queue="ab+gpu")
    assert drain(world, Plan(queues=("a",), labels=("gpu",))) == []


def test_settings_count_for_all_lines_of_a_queue(world: World) -> None:
    id = world.put(queue="a+gpu")
    pause(world, "a")
    assert drain(world, Plan(labels=("gpu",))) == []
    assert drain(world, Plan(queues=("a", "b"), labels=("gpu",))) == []
    assert [record.id for record in world.engine.find(Filter(queue="a")).records] == [id]
    assert sum(purge(world, "a")) == 1
    assert world.engine.check() == []


def test_shares_count_by_queue_whatever_the_line(world: World) -> None:
    for _ in range(6):
        world.put(queue="a+gpu")
        world.put(queue="a")
        world.put(queue="b")
    plan = Plan(queues=("a", "b"), shares=(Share(0, 2, b"\0\0\1"),), labels=("gpu",))
    batch = take(world, plan, 3)
    assert Counter(queue_of(claim.queue) for claim in batch.claims) == {"a": 2, "b": 1}


def test_suspects_with_labels_are_for_who_has_them(world: World) -> None:
    world.put(queue="a+gpu")
    claim = take(world, Plan(labels=("gpu",)), 1).claims[0]
    world.engine.close("worker", [claim.id], "killed")
    assert not take(world, Plan(), 1, "other").suspects
    assert take(world, Plan(labels=("gpu",)), 1, "other").suspects
    plan = Plan(queues=("a",), labels=("gpu",), suspects=True)
    assert len(take(world, plan, 1, "other").claims) == 1


# ------------------------------------------------------------------------------------------- tasks

MINE = ("mine", "also")


def put_in_turn(world: World, number: int, *tasks: str, **fields: Any) -> dict[str, list[str]]:
    """Put jobs of several tasks one by one, in turn; return the ids of each task."""
    ids: dict[str, list[str]] = {task: [] for task in tasks}
    for _ in range(number):
        for task in tasks:
            ids[task].append(world.put(task=task, **fields))
    return ids


@pytest.mark.parametrize("queues", [(), ("a",), ("b", "a")])
def test_a_worker_gets_only_jobs_of_its_tasks(world: World, queues: tuple[str, ...]) -> None:
    ids = put_in_turn(world, 4, "other", "mine", "another", "also", queue="a")
    others = [*ids["other"], *ids["another"]]
    before = world.engine.get(others)
    plan = Plan(queues=queues, tasks=MINE)
    assert sorted(drain(world, plan)) == sorted([*ids["mine"], *ids["also"]])
    assert take(world, plan, 10) == Batch()
    assert world.engine.get(others) == before
    assert world.engine.check() == []
    assert sorted(drain(world)) == sorted(others)


@pytest.mark.needs(Capability.STRICT_ORDER)
@pytest.mark.parametrize("queues", [(), ("a",)])
def test_jobs_of_its_tasks_come_in_their_order(world: World, queues: tuple[str, ...]) -> None:
    ids = []
    for line, priority in (("a", 2), ("a+gpu", 1), ("a", 0), ("a+gpu", 0), ("a", 0)):
        world.put(task="other", queue=line, priority=priority)
        ids.append(world.put(task="mine", queue=line, priority=priority))
    plan = Plan(queues=queues, labels=("gpu",), tasks=MINE)
    claimed = [claim.id for _ in ids for claim in take(world, plan, 1).claims]
    assert claimed == ids


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_a_job_behind_other_tasks_in_one_queue_may_come_before_another_queue(world: World) -> None:
    world.put(task="other", queue="a", priority=9)
    third = world.put(task="mine", queue="a", priority=1)
    first = world.put(task="mine", queue="b", priority=5)
    second = world.put(task="mine", queue="a", priority=3)
    assert drain(world, Plan(tasks=MINE)) == [first, second, third]


def test_turns_and_tiers_count_jobs_of_its_tasks(world: World) -> None:
    for queue in ("a", "b", "last"):
        put_in_turn(world, 6, "other", "mine", queue=queue)
    shares = (Share(0, 2, b"\0\0\1"),)
    plan = Plan(queues=("a", "b", "last"), shares=shares, tasks=MINE)
    assert queues_of(take(world, plan, 3)) == ["a", "a", "b"]
    assert queues_of(take(world, plan, 12)) == ["a"] * 4 + ["b"] * 5 + ["last"] * 3


def in_one_partition(world: World, number: int, **fields: Any) -> list[str]:
    """Put jobs into the partition of the first schedule, whatever the engine would choose."""
    partition = world.engine.schedule_partition("s")
    jobs = [world.new(id=world.later_id(partition), **fields) for _ in range(number)]
    world.engine.put(jobs)
    return [job.id for job in jobs]


@pytest.mark.parametrize("queues", [(), ("a",)])
def test_a_claim_passes_over_a_bounded_number_of_jobs(
    world: World, queues: tuple[str, ...]
) -> None:
    plan = Plan(queues=queues, tasks=MINE)
    assert plan.most_passed_over == MAX_PASSED_OVER
    others = in_one_partition(world, MAX_PASSED_OVER, queue="a", task="other")
    ids = in_one_partition(world, 2, queue="a", task="mine")
    assert drain(world, plan) == ids
    in_one_partition(world, 1, queue="a", task="other")
    (late,) = in_one_partition(world, 1, queue="a", task="mine")
    assert take(world, plan, 5) == Batch()
    first = in_one_partition(world, 1, queue="a", task="mine", priority=1)
    assert drain(world, plan) == first
    world.engine.cancel(others[:1])
    assert drain(world, plan) == [late]


def test_no_queue_hides_the_jobs_of_another(world: World) -> None:
    others = in_one_partition(world, MAX_PASSED_OVER // 2 + 1, queue="a", task="other")
    hidden, found = (in_one_partition(world, 1, queue=queue, task="mine") for queue in ("a", "b"))
    plan = Plan(queues=("a", "b", "a"), tasks=MINE)
    assert plan.most_passed_over == MAX_PASSED_OVER // 2
    assert drain(world, plan) == found
    world.engine.cancel(others[:1])
    assert drain(world, plan) == hidden


def test_a_job_of_another_task_neither_expires_nor_is_held(world: World) -> None:
    expired = world.put(task="other", expires_in_ms=0)
    paused = world.put(task="paused")
    world.engine.pause_task("paused")
    mine = [world.put(task="mine", expires_in_ms=0), world.put(task="mine")]
    before = world.engine.get([expired, paused])
    assert drain(world, Plan(tasks=MINE)) == mine[1:]
    assert world.get(mine[0]).state is State.CANCELLED
    assert world.engine.get([expired, paused]) == before
    assert world.engine.check() == []


def test_suspects_of_other_tasks_are_not_mentioned(world: World) -> None:
    ids = put_in_turn(world, 1, "other", "mine")
    suspects = [id for some in ids.values() for id in some]
    take(world, Plan(), 9)
    world.engine.close("worker", suspects, "killed")
    plan, alone = Plan(tasks=MINE), Plan(tasks=MINE, suspects=True)
    assert take(world, plan, 9, "next").suspects
    batch = take(world, alone, 9, "next")
    assert ([claim.id for claim in batch.claims], batch.suspects) == (ids["mine"], False)
    assert not take(world, plan, 9, "next").suspects
    assert take(world, Plan(), 9, "next").suspects


def test_the_byte_limit_counts_jobs_of_its_tasks(world: World) -> None:
    for _ in range(3):
        in_one_partition(world, 1, task="other", payload=b"x" * 1_000)
        in_one_partition(world, 1, task="mine", payload=b"x" * 100)
    plan = Plan(tasks=MINE, most_bytes=200)
    first = take(world, plan, 9)
    assert (len(first.claims), first.next_in_ms) == (2, 0)
    assert len(take(world, plan, 9).claims) == 1
    assert take(world, plan, 9) == Batch()


@pytest.mark.parametrize("queues", [(), ("a", "b")])
def test_a_claim_of_some_tasks_is_repeated_as_it_was(world: World, queues: tuple[str, ...]) -> None:
    put_in_turn(world, 6, "other", "mine", queue="a")
    nonce, plan = world.nonce(), Plan(queues=queues, tasks=MINE)
    first = claim_jobs(world.engine, "worker", nonce, plan, 4)
    again = claim_jobs(world.engine, "worker", nonce, plan, 4)
    assert len(first.claims) == 4
    assert set(ids_of(again)) == set(ids_of(first))


# ------------------------------------------------------------------------------------------ bounds


def bound(world: World, queue: str, most: int) -> None:
    world.engine.change_queue(queue, QueueChange(max_waiting=most))


def codes(world: World, number: int, **fields: Any) -> Counter[PutCode]:
    jobs = [world.new(**fields) for _ in range(number)]
    return Counter(placed.code for placed in world.engine.put(jobs))


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_no_more_wait_than_may(world: World) -> None:
    bound(world, "a", 5)
    assert codes(world, 2, queue="a", run_in_ms=1_000) == {PutCode.CREATED: 2}
    assert codes(world, 5, queue="a") == {PutCode.CREATED: 3, PutCode.FULL: 2}
    assert codes(world, 1, queue="a") == {PutCode.FULL: 1}
    assert codes(world, 9, queue="b") == {PutCode.CREATED: 9}
    # A running job does not count as waiting, and a returning job is never refused.
    claims = take(world, Plan(queues=("a",)), 2).claims
    assert codes(world, 3, queue="a") == {PutCode.CREATED: 2, PutCode.FULL: 1}
    world.finish(Released(id=claims[0].id, token=claims[0].token, started=False))
    assert codes(world, 1, queue="a") == {PutCode.FULL: 1}
    bound(world, "a", 0)
    assert codes(world, 1, queue="a") == {PutCode.CREATED: 1}
    assert world.engine.check() == []


def test_what_is_stored_is_found_again_in_a_full_queue(world: World) -> None:
    bound(world, "a", 1)
    job = world.new(queue="a", idempotency_key="key")
    repeated = world.new(queue="a", idempotency_key="key")
    assert world.engine.put([job]) == [Placed(job.id, PutCode.CREATED)]
    assert world.engine.put([job, repeated]) == [
        Placed(job.id, PutCode.CREATED),
        Placed(job.id, PutCode.EXISTING),
    ]


def test_a_key_that_found_no_room_is_free(world: World) -> None:
    """Free the key of a refused job: a later call would get a job that was never stored."""
    bound(world, "a", 1)
    first = world.new(queue="a", idempotency_key="key")
    second = NewJob(id=new_id(99, partition_of(first.id)), task="task", queue="a", payload=b"{}")
    world.engine.put([second])
    assert world.engine.put([first]) == [Placed(first.id, PutCode.FULL)]
    bound(world, "a", 0)
    assert world.engine.put([first]) == [Placed(first.id, PutCode.CREATED)]


def test_partitions_share_a_bound(world: World) -> None:
    bound(world, "a", 40)
    for _ in range(100):
        world.put(queue="a")
    assert len(world.ids()) == 40
    assert world.engine.queues() == [QueueRecord(queue="a", max_waiting=40)]
