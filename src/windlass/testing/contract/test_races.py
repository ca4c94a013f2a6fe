"""Test races: threads with their own engine objects start at one barrier.

If a place cannot be opened twice, the threads share one engine object.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TypeVar

import pytest

from windlass.core.states import Counters, Reason, State
from windlass.core.unique import OnConflict
from windlass.engine.contract import (
    CancelCode,
    ChangeCode,
    Engine,
    Filter,
    JobChange,
    Placed,
    Plan,
    PutCode,
    Retried,
    Succeeded,
    UniqueKey,
    Verdict,
)
from windlass.testing.contract.world import LEASE_MS, World, claim_jobs, ids_of, retry_jobs

T = TypeVar("T")


def race(world: World, number: int, act: Callable[[Engine, int], T]) -> list[T]:
    """Let `number` threads act at once, each with its own engine object; return their results."""
    engines = [world.open() for _ in range(number)]
    for engine in engines:
        engine.stats()  # connect first, so that only the act races
    barrier = threading.Barrier(number)

    def run(index: int) -> T:
        barrier.wait()
        return act(engines[index], index)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))


def test_claimers_never_share_a_job(world: World) -> None:
    ids = world.put_many(300)

    def claim_all(engine: Engine, index: int) -> list[str]:
        mine: list[str] = []
        for turn in range(1000):
            batch = claim_jobs(engine, f"worker-{index}", f"nonce-{index}-{turn}", Plan(), 7)
            if not batch.claims:
                return mine
            mine += ids_of(batch)
        raise AssertionError("the jobs do not come to an end")

    claimed = [id for mine in race(world, 8, claim_all) for id in mine]
    assert sorted(claimed) == ids
    assert all(world.get(id).counters == Counters(1, 1) for id in ids)


def test_one_finisher_has_an_effect(world: World) -> None:
    id = world.put()
    claim = world.take()

    def finish(engine: Engine, index: int) -> list[Verdict]:
        result = f"result of {index}".encode()
        outcome = Succeeded(id=id, token=claim.token, result=result, result_ttl_ms=60_000)
        return engine.finish([outcome])

    verdicts = [verdict for [verdict] in race(world, 12, finish)]
    assert sorted(verdicts) == [Verdict.OK] + [Verdict.REPEATED] * 11
    assert world.engine.stats().totals["succeeded"] == 1
    assert world.get(id).state is State.SUCCEEDED


def test_one_nonce_claims_one_batch(world: World) -> None:
    world.put_many(50)
    batches = race(
        world, 8, lambda engine, index: ids_of(claim_jobs(engine, "worker", "same", Plan(), 5))
    )
    assert batches == [batches[0]] * 8
    assert world.engine.stats().queues == {"queue": {State.READY: 45, State.RUNNING: 5}}


def test_a_job_is_claimed_or_cancelled(world: World) -> None:
    for turn in range(20):
        id = world.put()

        def act(engine: Engine, index: int, id: str = id, turn: int = turn) -> object:
            if index % 2:
                return engine.cancel([id])[0]
            return ids_of(claim_jobs(engine, f"worker-{index}", f"{turn}-{index}", Plan(), 1))

        replies = race(world, 4, act)
        record = world.get(id)
        claimed = sum(reply == [id] for reply in replies[::2])
        if record.state is State.CANCELLED:
            assert (claimed, replies[1::2]) == (0, [CancelCode.CANCELLED] * 2)
        else:
            assert (record.state, record.cancel_requested, claimed) == (State.RUNNING, True, 1)
            assert replies[1::2] == [CancelCode.REQUESTED] * 2


def test_each_job_is_lost_once(world: World) -> None:
    ids = world.put_many(300)
    world.claim("silent", limit=300)
    world.pass_time(LEASE_MS)

    def reap(engine: Engine, index: int) -> int:
        reaped = 0
        for _ in range(3):
            claim_jobs(engine, f"reaper-{index}", f"nonce-{index}", Plan(), 0)
            reaped += engine.tend().reaped
        return reaped

    race(world, 8, reap)
    lost = Counters(starts=1, losses=1)
    assert Counter(world.get(id).counters for id in ids) == {lost: 300}
    assert all(len(world.get(id).failures) == 1 for id in ids)
    assert world.engine.stats().totals["lost"] == 300


def test_each_due_job_is_promoted_once(world: World) -> None:
    ids = world.put_many(300, run_in_ms=10)
    world.advance(10)

    def claim(engine: Engine, index: int) -> list[str]:
        nonces = [f"nonce-{index}-{turn}" for turn in range(3)]
        batches = [claim_jobs(engine, f"worker-{index}", nonce, Plan(), 100) for nonce in nonces]
        return [id for batch in batches for id in ids_of(batch)]

    claimed = [id for mine in race(world, 8, claim) for id in mine]
    assert sorted(claimed) == ids


def test_a_beat_saves_a_session_or_comes_too_late(world: World) -> None:
    for turn in range(10):
        session = f"worker-{turn}"
        id = world.put()
        world.claim(session)
        world.pass_time(LEASE_MS)

        def act(engine: Engine, index: int, session: str = session) -> bool:
            if index % 2:
                return engine.tend().reaped == 1
            return world.alive(session)

        alive, *others = race(world, 4, act)
        record = world.get(id)
        assert alive is others[1]  # the two heartbeats agree
        assert alive is (record.state is State.RUNNING)
        assert others[0] + others[2] == (not alive)
        world.engine.close(session, [], "ended")
        world.engine.cancel([id])


def test_a_key_makes_one_job(world: World) -> None:
    jobs = [world.new(idempotency_key="key") for _ in range(16)]
    placed = race(world, 16, lambda engine, index: engine.put([jobs[index]])[0])
    (winner,) = [item for item in placed if item.code is PutCode.CREATED]
    assert Counter(placed) == {winner: 1, Placed(winner.id, PutCode.EXISTING): 15}
    assert world.ids() == [winner.id]


def test_a_unique_key_makes_one_job(world: World) -> None:
    jobs = [world.new(unique=UniqueKey(key="key")) for _ in range(16)]
    placed = race(world, 16, lambda engine, index: engine.put([jobs[index]])[0])
    (winner,) = [item for item in placed if item.code is PutCode.CREATED]
    assert Counter(placed) == {winner: 1, Placed(winner.id, PutCode.EXISTING): 15}
    assert world.ids() == [winner.id]


@pytest.mark.parametrize("on_conflict", OnConflict)
def test_a_unique_job_ends_before_the_next_begins(world: World, on_conflict: OnConflict) -> None:
    """Let half of the callers put jobs, and half claim and end them. Each put returns or stores a
    live job, and never replaces the arguments of a running job."""
    unique = UniqueKey(key="key", on_conflict=on_conflict)
    jobs = [[world.new(unique=unique) for _ in range(25)] for _ in range(4)]

    def act(engine: Engine, index: int) -> Counter[str]:
        if index % 2:
            return Counter(engine.put([job])[0].code for job in jobs[index])
        done: Counter[str] = Counter()
        for turn in range(25):
            nonce = f"nonce-{index}-{turn:02}"
            claims = claim_jobs(engine, f"worker-{index}", nonce, Plan(), 9).claims
            assert len(claims) <= 1
            running = engine.find(Filter(state=State.RUNNING)).records
            assert {record.id for record in running} <= {claim.id for claim in claims} or not claims
            done["ended"] += len(claims)
            engine.finish([Succeeded(id=claim.id, token=nonce) for claim in claims])
        return done

    said = sum(race(world, 4, act), Counter[str]())
    live = [record for record in world.records() if record and not record.state.is_final]
    assert said["created"] == said["ended"] + len(live)
    assert len(live) <= 1
    assert world.engine.check() == []


def test_one_of_two_dead_jobs_lives_again(world: World) -> None:
    unique = UniqueKey(key="key")
    ids = []
    for _ in range(8):
        ids.append(world.put(unique=unique))
        world.engine.cancel(ids[-1:])
    codes = race(world, 8, lambda engine, index: retry_jobs(engine, [ids[index]])[0])
    assert Counter(codes) == {ChangeCode.DONE: 1, ChangeCode.DUPLICATE: 7}
    assert world.engine.check() == []


def test_an_id_makes_one_job(world: World) -> None:
    job = world.new()
    placed = race(world, 16, lambda engine, index: engine.put([job])[0])
    assert placed == [Placed(job.id, PutCode.CREATED)] * 16
    assert world.engine.stats().queues == {"queue": {State.READY: 1}}


def test_one_operator_revives_a_job(world: World) -> None:
    ids = world.put_many(20)
    world.engine.cancel(ids)
    codes = race(world, 8, lambda engine, index: retry_jobs(engine, ids))
    for column in zip(*codes, strict=True):
        assert Counter(column) == {"done": 1, "refused": 7}


def test_counters_and_records_agree_at_every_instant(world: World) -> None:
    total = 40
    ids = world.put_many(total)

    def go_round(engine: Engine, index: int) -> None:
        for turn in range(25):
            nonce = f"{index}-{turn}"
            claims = claim_jobs(engine, f"worker-{index}", nonce, Plan(), 5).claims
            engine.cancel([claim.id for claim in claims])
            engine.release(f"worker-{index}", nonce)
            retry_jobs(engine, [claim.id for claim in claims])

    def look(engine: Engine) -> None:
        assert engine.check() == []
        assert sum(engine.stats().queues["queue"].values()) == total
        for record in engine.get(ids):
            assert record is not None
            assert (record.reason is Reason.CANCELLED) is (record.state is State.CANCELLED)

    look_while(world, go_round, look)
    assert world.engine.stats().queues == {"queue": {State.READY: total}}


def test_a_record_is_read_whole(world: World) -> None:
    """Check that a record never has the body or the history of another instant."""

    def come_and_go(engine: Engine, index: int) -> None:
        id = f"job-{index}"
        for turn in range(100):
            engine.put([world.new(id=id, payload=b"body", queue=id)])
            claim_jobs(engine, f"worker-{index}-{turn}", "nonce", Plan(queues=(id,)), 1)
            engine.close(f"worker-{index}-{turn}", [id], "killed")
            engine.cancel([id])
            engine.discard([id])

    def look(engine: Engine) -> None:
        for record in engine.get(["job-0", "job-1"]):
            if record is not None:
                assert record.payload == b"body"
                assert len(record.failures) == record.counters.crashes

    look_while(world, come_and_go, look)
    assert world.ids() == []


def look_while(
    world: World, act: Callable[[Engine, int], None], look: Callable[[Engine], None]
) -> None:
    """Let two threads act while two other threads look repeatedly."""
    acting = threading.Semaphore(0)

    def act_or_look(engine: Engine, index: int) -> None:
        if index < 2:
            try:
                act(engine, index)
            finally:
                acting.release()
            return
        while not acting.acquire(blocking=False):
            look(engine)

    race(world, 4, act_or_look)


def test_no_job_is_lost_while_jobs_are_changed_and_tasks_paused(world: World) -> None:
    """Two workers run jobs, while others move and edit them, and pause and resume their task."""
    ids = world.put_many(120, task="paused", payload=b"0")
    ids += world.put_many(40, task="paused", run_in_ms=60_000, payload=b"0")
    is_over = threading.Event()
    queues = ("queue", "other", "other+gpu")

    def work(engine: Engine, index: int) -> list[str]:
        done: list[str] = []
        for turn in count():
            plan, was_over = Plan(labels=("gpu",)), is_over.is_set()
            nonce = f"{turn:06}-{index}"
            batch = claim_jobs(engine, f"worker-{index}", nonce, plan, 5)
            ends = [
                Succeeded(id=claim.id, token=nonce)
                if number % 2
                else Retried(id=claim.id, token=nonce, delay_ms=0, error=b"again")
                for number, claim in enumerate(batch.claims, start=turn)
            ]
            assert set(engine.finish(ends)) <= {Verdict.OK}
            done += [end.id for end in ends if isinstance(end, Succeeded)]
            if not batch.claims and was_over:
                return done
        raise AssertionError("never reached")

    def change(engine: Engine, index: int) -> list[str]:
        for turn in range(60):
            chosen = ids[turn % 7 :: 7]
            changes = [
                JobChange(
                    id=id,
                    payload=b"%d" % turn if turn % 3 == 0 else None,
                    queue=queues[turn % 3],
                    run_in_ms=0 if turn % 2 else None,
                )
                for id in chosen
            ]
            assert set(engine.change_jobs(changes)) <= {ChangeCode.DONE, ChangeCode.REFUSED}
        return []

    def pause(engine: Engine, index: int) -> list[str]:
        for _ in range(20):
            engine.pause_task("paused")
            engine.tend()
            while engine.resume_task("paused"):
                pass
        return []

    def act(engine: Engine, index: int) -> list[str]:
        if index < 2:
            return work(engine, index)
        try:
            return (change if index == 2 else pause)(engine, index)
        finally:
            arrived.append(index)
            if len(arrived) == 2:
                engine.change_jobs([JobChange(id=id, run_in_ms=0) for id in ids])
                is_over.set()

    arrived: list[int] = []
    done = [id for mine in race(world, 4, act) for id in mine]
    assert sorted(done) == sorted(ids)
    assert {record.state for record in world.engine.get(ids) if record} == {State.SUCCEEDED}
    assert world.engine.check() == []
