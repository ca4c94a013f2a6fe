"""Turns over several queues take one round trip, and claim what the long way claims."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables
from tests.engine.postgres.round_trips import TripCounter, counted
from windlass.engine.contract import (
    NewJob,
    Outcome,
    Plan,
    QueueChange,
    Retried,
    Succeeded,
)
from windlass.engine.postgres.engine import PostgresEngine
from windlass.engine.postgres.verbs import hot
from windlass.testing.contract.world import StandingStill, claim_jobs

EVERY: Final = Plan()
TIERS: Final = Plan(queues=("c", "none", "a", "b"))


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        yield database


@pytest.fixture
def engine(database: Database) -> PostgresEngine:
    return database.open()


@pytest.fixture
def trips(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[TripCounter]:
    with counted(database, monkeypatch) as counter:
        yield counter


def in_queues(names: str, first: int = 0) -> list[NewJob]:
    return [new_job(first + at, queue=name) for at, name in enumerate(names)]


def numbers(engine: PostgresEngine, nonce: str, plan: Plan, limit: int) -> list[int]:
    claims = claim_jobs(engine, "s", nonce, plan, limit).claims
    return [int(claim.id.removeprefix("job-")) for claim in claims]


# ------------------------------------------------------------------------------------ round trips


@pytest.mark.parametrize("plan", [EVERY, TIERS], ids=["every queue", "tiers"])
@pytest.mark.parametrize("limit", [1, 5])
def test_a_turn_over_several_queues_takes_one_round_trip(
    trips: TripCounter, plan: Plan, limit: int
) -> None:
    trips.engine.put(in_queues("abc" * 10))
    held: list[Outcome] = []

    def turn(nonce: str) -> Callable[[PostgresEngine], None]:
        def call(engine: PostgresEngine) -> None:
            done = engine.turn("s", held, nonce, plan, limit)
            held[:] = [Succeeded(id=one.id, token=nonce) for one in done.batch.claims]

        return call

    for nonce in "ab":  # the first claim of a session is of the long way, and prepares statements
        trips.of(turn(nonce))
    assert [trips.of(turn(nonce)) for nonce in "cde"] == [1, 1, 1]
    assert len(held) == limit


def test_a_turn_that_serves_every_queue_when_one_has_jobs(trips: TripCounter) -> None:
    """It claims from that line, which can skip dead rows; later again from several."""
    trips.engine.put(in_queues("a" * 20))
    for nonce in "abc":
        numbers(trips.engine, nonce, EVERY, 1)
    assert trips.engine._assumed == hot.Assumptions(only_line="a")
    assert trips.of(lambda engine: numbers(engine, "d", EVERY, 1)) == 1
    trips.engine.put(in_queues("b" * 20, 100))
    assert trips.of(lambda engine: numbers(engine, "e", EVERY, 1)) == 2
    assert trips.of(lambda engine: numbers(engine, "f", EVERY, 1)) == 1


def test_an_idle_turn_locks_nothing(trips: TripCounter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without jobs only reads: a lock would write to the disk at each of its polls."""
    trips.engine.put(in_queues("ab"))
    assert numbers(trips.engine, "a", EVERY, 5) == [0, 1]
    assert numbers(trips.engine, "b", EVERY, 5) == []
    monkeypatch.setattr(trips.engine, "_run_short", None)
    assert numbers(trips.engine, "c", EVERY, 5) == []
    monkeypatch.undo()
    trips.engine.put(in_queues("ab", 10))
    assert numbers(trips.engine, "d", EVERY, 5) == [10, 11]
    assert trips.engine._assumed == hot.Assumptions()


# -------------------------------------------------------------------------------------- the order


@pytest.fixture
def ready(engine: PostgresEngine) -> PostgresEngine:
    """An engine whose next claim takes the short way."""
    engine.put([new_job(1_000, queue="other"), new_job(1_001, queue="other")])
    for number in range(2):
        claim_jobs(engine, "s", f"0{number}", Plan(queues=("other",)), 1)
    return engine


def test_every_queue_by_priority_and_place(ready: PostgresEngine) -> None:
    ready.put([*in_queues("aabbab"), new_job(9, queue="b", priority=5)])
    assert numbers(ready, "a", EVERY, 4) == [9, 0, 1, 2]
    assert numbers(ready, "b", EVERY, 9) == [3, 4, 5]


def test_tiers_one_after_the_other(ready: PostgresEngine) -> None:
    ready.put([*in_queues("abcab"), new_job(9, queue="b", priority=5)])
    assert numbers(ready, "a", TIERS, 4) == [2, 0, 3, 9]
    assert numbers(ready, "b", TIERS, 4) == [1, 4]


def test_labels_and_pauses(ready: PostgresEngine) -> None:
    ready.change_queue("b", QueueChange(paused=True))
    ready.put([*in_queues("ab"), new_job(2, queue="a+gpu"), new_job(3, queue="c")])
    assert numbers(ready, "a", EVERY, 9) == [0, 3]
    ready.put(in_queues("cab", 10))
    assert numbers(ready, "b", TIERS, 9) == [10, 11]
    assert ready.check() == []


def test_a_batch_with_few_bytes(ready: PostgresEngine) -> None:
    ready.put([new_job(at, queue=name, payload=b"x" * 10) for at, name in enumerate("abab")])
    batch = claim_jobs(ready, "s", "a", Plan(most_bytes=25), 9)
    assert [claim.id for claim in batch.claims] == ["job-000000", "job-000001"]
    assert batch.next_in_ms == 0


def test_an_expired_job_is_cancelled(ready: PostgresEngine) -> None:
    ready.put([new_job(0, queue="a", expires_ms=1), *in_queues("ab", 1)])
    assert numbers(ready, "a", EVERY, 9) == [1, 2]
    assert ready.check() == []


# ------------------------------------------------------------------------ claims at the same time


def test_jobs_that_others_are_taking_are_passed_over(
    database: Database, ready: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim takes the next ones of the same lines, then of others, without the long way."""
    ready.put(in_queues("aaabbc"))
    monkeypatch.setattr(ready, "_claim", None)
    with database.server.connect(database.name) as other:
        other.execute("BEGIN")
        other.execute("SELECT 1 FROM windlass.jobs WHERE id = 'job-000000' FOR UPDATE")
        assert numbers(ready, "a", EVERY, 1) == [1]
        other.execute("SELECT 1 FROM windlass.jobs WHERE id = 'job-000002' FOR UPDATE")
        assert numbers(ready, "b", EVERY, 1) == [3]
        assert numbers(ready, "c", TIERS, 2) == [5, 4]
        other.execute("ROLLBACK")
    assert numbers(ready, "d", EVERY, 9) == [0, 2]


# --------------------------------------------------------------------------------- as the long way


@pytest.mark.parametrize("seed", range(8))
def test_the_short_way_claims_what_the_long_way_claims(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    with with_tables() as one, with_tables() as other:
        short, long = one.open(), other.open()
        real = hot.lines_for
        took: list[int] = []
        for at in range(40):
            jobs = [some_job(chance, 100 * at + number) for number in range(chance.randint(0, 8))]
            plan = Plan(
                queues=tuple(chance.sample("abc", chance.choice([0, 0, 2, 3]))),
                most_bytes=chance.choice([10, 1_000_000]),
            )
            limit, outcome_of = chance.choice([1, 3, 10]), chance.choice([success, success, retry])
            turns = []
            for engine in (short, long):
                engine.clock_offset_ms = StandingStill(1_000_000 + 100 * at)
                lines_for = real if engine is short else lambda *_: None
                monkeypatch.setattr(hot, "lines_for", lines_for)
                engine.put(jobs)
                first = engine.turn("s", [], f"{at:03}a", plan, limit)
                done = [outcome_of(one.id, one.token) for one in first.batch.claims]
                turns.append([first, engine.turn("s", done, f"{at:03}b", plan, limit)])
                took.append(len(first.batch.claims))
                ends = [success(one.id, one.token) for one in turns[-1][1].batch.claims]
                engine.finish(ends)
            assert turns[0] == turns[1]
        assert short.stats() == long.stats()
        assert [engine.check() for engine in (short, long)] == [[], []]
        assert sum(took) > 40


def some_job(chance: random.Random, number: int) -> NewJob:
    return new_job(
        number,
        queue=chance.choice(["a", "b", "b", "c", "c+gpu"]),
        priority=chance.choice([0, 0, 0, 5, -5]),
        payload=b"x" * chance.choice([1, 8]),
        run_in_ms=chance.choice([0, 0, 0, 0, 500]),
        expires_in_ms=chance.choice([None, None, None, None, 300]),
    )


def success(job: str, token: str) -> Outcome:
    return Succeeded(id=job, token=token)


def retry(job: str, token: str) -> Outcome:
    fields: dict[str, Any] = {"id": job, "token": token}
    return Retried(**fields, delay_ms=0, error=b"e")
