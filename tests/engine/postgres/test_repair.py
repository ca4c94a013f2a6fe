"""Inconsistent rows stop nothing else, `check` reports them, and `repair` fixes them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.engine.conftest import new_job, repair_all
from tests.engine.postgres.databases import Database, with_tables
from windlass.core.states import Hold, Reason, State
from windlass.engine.contract import (
    Buried,
    Claim,
    Filter,
    Plan,
    QueueChange,
    Repaired,
    Retried,
    ScheduleChange,
    Succeeded,
    UniqueKey,
    Unroutable,
)
from windlass.engine.postgres.engine import PostgresEngine
from windlass.engine.postgres.verbs import check, repair
from windlass.errors import InvalidCursor
from windlass.testing.contract.world import claim_jobs

JOBS = 20


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        yield database


@pytest.fixture
def engine(database: Database) -> PostgresEngine:
    return database.open()


def success(claim: Claim) -> Succeeded:
    return Succeeded(id=claim.id, token=claim.token, result=b"1", result_ttl_ms=60_000)


def run_all(engine: PostgresEngine, session: str = "runner") -> list[str]:
    ran: list[str] = []
    for number in range(5):
        plan = Plan(labels=("gpu",))
        claims = claim_jobs(engine, session, f"{number:032}", plan, 100).claims
        engine.finish([success(claim) for claim in claims])
        ran += [claim.id for claim in claims]
        engine.tend()
    return ran


#: what -> statements
DAMAGE = {
    "failure of no job": ["INSERT INTO failures VALUES (999, 1, 1, NULL, 1, 'retry', 's', '')"],
    "step of no job": ["INSERT INTO steps VALUES (999, 'charge', '')"],
    "counter too low": [
        "UPDATE counters SET number = 0 WHERE part = 'ready'",
        "DELETE FROM deltas WHERE part = 'ready'",
    ],
    "counter too high": ["INSERT INTO deltas VALUES ('jobs', 'q', 'ready', 90)"],
    "counter below zero": ["INSERT INTO deltas VALUES ('jobs', 'q', 'ready', -90)"],
    "counters missing": ["DELETE FROM counters WHERE kind = 'jobs'", "DELETE FROM deltas"],
    "counter of no job": ["INSERT INTO counters VALUES ('jobs', 'ghost', 'dead', 3)"],
    "counter of successes": ["INSERT INTO deltas VALUES ('jobs', 'q', 'succeeded', 5)"],
    "due and ready": ["UPDATE jobs SET due_ms = 1 WHERE id = 'job-000003'"],
    "kept and ready": ["UPDATE jobs SET keep_until_ms = 1 WHERE id = 'job-000003'"],
    "not kept": ["UPDATE jobs SET keep_until_ms = NULL WHERE state = 'dead'"],
    "not due": ["UPDATE jobs SET due_ms = NULL WHERE state = 'scheduled'"],
    "held and scheduled": ["UPDATE jobs SET hold = 'paused' WHERE state = 'scheduled'"],
    "sequence": ["SELECT setval('numbers', 3)"],
    "sequence of schedules": [
        "UPDATE schedules SET row = DEFAULT",
        "UPDATE schedule_bodies SET schedule = (SELECT row FROM schedules)",
        "SELECT setval('schedules_row_seq', 1)",
    ],
    "sequence of the audit trail": [
        "INSERT INTO audit OVERRIDING SYSTEM VALUE VALUES (900, 1, 'a', '')"
    ],
    "sequence of groups": ["SELECT setval('dead_groups_number_seq', 1)"],
    "no session": ["DELETE FROM sessions"],
    "session without jobs": ["UPDATE sessions SET gone = 2"],
    "unique key of no job": ["INSERT INTO unique_keys VALUES ('t', 'k', 'ghost')"],
    "unique key of another": ["INSERT INTO unique_keys VALUES ('t', 'k', 'job-000004')"],
    "unique key of a success": ["INSERT INTO unique_keys VALUES ('t', 'k', 'job-000100')"],
    "lost unique key": ["DELETE FROM unique_keys"],
    "death of no job": ["INSERT INTO deaths VALUES (999, 1, 1)"],
    "death at another time": ["UPDATE deaths SET at_ms = 1"],
    "dead and in no group": ["DELETE FROM deaths", "DELETE FROM dead_groups"],
    "group too small": ["UPDATE dead_groups SET jobs = 0"],
    "group without jobs": [
        "INSERT INTO dead_groups (jobs, fingerprint, release, queue, task) "
        "VALUES (2, 'aa', '', 'q', 't')"
    ],
    "schedule without body": ["DELETE FROM schedule_bodies"],
    "body without schedule": ["DELETE FROM schedules"],
}


def prepare(engine: PostgresEngine) -> None:
    """Store twenty ready jobs, and some in each other state."""
    engine.put([new_job(number) for number in range(100, 104)])
    engine.put([new_job(104, unique=UniqueKey(key="own")), new_job(105, run_in_ms=3_600_000)])
    engine.put([new_job(106, queue="q", task="other")])
    one, two, three, *_ = claim_jobs(engine, "early", "0", Plan(), 6).claims
    engine.finish(
        [
            success(one),
            Buried(id=two.id, token="0", reason=Reason.REJECTED, error=b"no", fingerprint="f"),
            Buried(id=three.id, token="0", reason=Reason.REJECTED, error=b"no"),
        ]
    )
    engine.change_schedules(
        [ScheduleChange(name="nightly", expected="", revision="r", due_ms=1, note=b"n", body=b"b")]
    )
    engine.put([new_job(number) for number in range(JOBS)])


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_stops_nothing_and_is_repaired(
    database: Database, engine: PostgresEngine, what: str
) -> None:
    prepare(engine)
    assert engine.check() == []
    assert repair_all(engine, change=False) == Repaired()
    database.execute("SET search_path = windlass", *DAMAGE[what])
    assert engine.check()
    would = repair_all(engine, change=False)
    assert would.fixed
    assert not would.left
    assert repair_all(engine, change=False) == would
    repaired = engine.stats().totals.get("repaired", 0)

    done = repair_all(engine, change=True)
    assert would.fixed[0] in done.fixed  # which may fix others too
    assert not done.left
    assert engine.stats().totals["repaired"] == repaired + len(done.fixed)
    assert engine.check() == []
    assert repair_all(engine, change=True) == Repaired()

    expected = {f"job-{number:06d}" for number in [*range(JOBS), 200, 201]}
    engine.put([new_job(200)])
    engine.put([new_job(201, unique=UniqueKey(key="k"))])
    assert expected <= set(run_all(engine))
    assert engine.check() == []


def test_a_lost_job_is_taken_back_after_the_repair(
    database: Database, engine: PostgresEngine
) -> None:
    engine.put([new_job()])
    claim_jobs(engine, "lost", "0", Plan(), 1)
    database.execute("DELETE FROM windlass.sessions")
    assert repair_all(engine, change=True).fixed == (
        "Job job-000000 is running for session lost, which is unknown: no worker will ever take it "
        "back: the session gets a lease, and beats or loses the job.",
    )
    for _ in range(6):  # after a longer silence, workers would get time for a heartbeat
        engine.clock_offset_ms += 900
        engine.tend()
    assert run_all(engine) == ["job-000000"]


@pytest.mark.parametrize(
    "damage",
    [
        ["UPDATE jobs SET due_ms = NULL WHERE hold = 'paused'"],
        ["UPDATE jobs SET due_ms = 1 WHERE hold = 'paused'", "DELETE FROM deltas"],
        ["UPDATE jobs SET hold = NULL WHERE hold = 'paused'"],
    ],
)
def test_held_jobs_of_a_paused_task_are_repaired(
    database: Database, engine: PostgresEngine, damage: list[str]
) -> None:
    jobs = [new_job(number, task="paused") for number in range(3)]
    engine.put(jobs)
    engine.pause_task("paused")
    assert not claim_jobs(engine, "early", "0", Plan(), 9).claims
    database.execute("SET search_path = windlass", *damage)
    assert engine.check()
    assert repair_all(engine, change=True).fixed
    assert engine.check() == []
    assert not claim_jobs(engine, "early", "1", Plan(), 9).claims
    holds = {record.hold for record in engine.get([job.id for job in jobs]) if record}
    assert holds == {Hold.PAUSED}
    assert engine.resume_task("paused") == 3
    assert sorted(run_all(engine)) == sorted(job.id for job in jobs)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (
            "UPDATE windlass.jobs SET state = 'lost' WHERE id = 'job-000001'",
            "Job job-000001 is in state lost, which does not exist.",
        ),
        (
            "UPDATE windlass.jobs SET starts = 3 WHERE id = 'job-000001'",
            "Job job-000001 was started 3 times, but its budgets account for 0.",
        ),
        (
            "UPDATE windlass.ended SET starts = 3",
            "Job job-000000 was started 3 times, but its budgets account for 1.",
        ),
        (
            "UPDATE windlass.ended SET id = 'job-000001'",
            "Job job-000001 has succeeded, and is stored as ready as well.",
        ),
    ],
)
def test_what_cannot_be_repaired_is_told(
    database: Database, engine: PostgresEngine, damage: str, sentence: str
) -> None:
    engine.put([new_job(0), new_job(1)])
    engine.finish([success(claim) for claim in claim_jobs(engine, "s", "n", Plan(), 1).claims])
    database.execute(damage)
    assert sentence in engine.check()
    assert sentence in repair_all(engine, change=True).left


def test_a_key_that_another_job_has_by_now_is_left(
    database: Database, engine: PostgresEngine
) -> None:
    """Two jobs hold one key: which of them should lose it, no repair can know."""
    engine.put([new_job(0, unique=UniqueKey(key="a")), new_job(1, unique=UniqueKey(key="b"))])
    database.execute("UPDATE windlass.jobs SET unique_key = 'b' WHERE id = 'job-000000'")
    done = repair_all(engine, change=True)
    assert len(done.fixed) == 1  # the key that leads to a job with another one
    assert done.left == (
        "Job job-000000 is ready and holds the unique key b, but that does not lead to it.",
    )


def test_many_errors_are_repaired_in_bounded_bites(
    database: Database, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors that cannot be fixed keep the repair from no other."""
    monkeypatch.setattr(check, "STRETCH", 7)
    monkeypatch.setattr(repair, "BITE", 2)
    engine.put([new_job(number, unique=UniqueKey(key=f"{number:02}")) for number in range(30)])
    database.execute(
        "UPDATE windlass.jobs SET unique_key = '29' WHERE row % 3 = 0",  # held by one of them
        "DELETE FROM windlass.unique_keys WHERE key <> '29'",
    )
    wrong = engine.check()
    assert len(wrong) == 29
    cursor, sizes, fixed = None, [], 0
    while True:
        bite = engine.repair(cursor, change=True)
        sizes.append(len(bite.fixed) + len(bite.left))
        fixed += len(bite.fixed)
        if (cursor := bite.cursor) is None:
            break
    assert max(sizes) == 2
    left = engine.check()
    assert sum(sizes) == len(wrong)
    assert fixed == len(wrong) - len(left)
    assert {line.rpartition("key ")[2] for line in left} == {"29, but that does not lead to it."}


@pytest.mark.parametrize("cursor", ["", "x", "[99]", "[-1]", '{"step":1}'])
def test_an_unknown_cursor_is_refused(engine: PostgresEngine, cursor: str) -> None:
    with pytest.raises(InvalidCursor, match="Expected a cursor that repair has returned"):
        engine.repair(cursor)


@pytest.mark.parametrize("seed", range(8))
def test_anything_that_follows_from_records_can_be_repaired(
    database: Database, engine: PostgresEngine, seed: int
) -> None:
    engine.change_queue("aged", QueueChange(ageing_ms=60_000))
    engine.change_queue("shut", QueueChange(paused=True))
    queues = ["q", "aged", "shut", "q+gpu"] * 5
    engine.put([new_job(number, queue=queue) for number, queue in enumerate(queues)])
    engine.put([new_job(50, run_in_ms=3_600_000), new_job(51, unique=UniqueKey(key="k"))])
    one, two, three, four, *_ = claim_jobs(engine, "busy", "0", Plan(), 6).claims
    engine.finish(
        [
            success(one),
            Buried(id=two.id, token="0", reason=Reason.REJECTED, error=b"no"),
            Unroutable(id=three.id, token="0"),
            Retried(id=four.id, token="0", delay_ms=60_000, error=b"again"),
        ]
    )
    before, rng = engine.stats().queues, random.Random(seed)
    records = engine.get([record.id for record in engine.find(Filter()).records])
    derived = [
        "UPDATE counters SET number = number + 3 WHERE name = 'aged'",
        "INSERT INTO deltas VALUES ('jobs', 'aged', 'ready', 3)",
        "DELETE FROM deltas WHERE part = 'running'",
        "INSERT INTO counters VALUES ('jobs', 'none', 'dead', 2)",
        "INSERT INTO deltas VALUES ('jobs', 'q', 'succeeded', -1)",
        "DELETE FROM unique_keys",
        "INSERT INTO unique_keys VALUES ('t', 'x', 'job-000001')",
        "DELETE FROM sessions",
        "SELECT setval('numbers', 3)",
        "SELECT setval('dead_groups_number_seq', 1)",
        "UPDATE deaths SET at_ms = 1",
        "UPDATE dead_groups SET jobs = 7",
        "INSERT INTO failures VALUES (998, 1, 1, NULL, 1, 'retry', 's', '')",
        "INSERT INTO steps VALUES (998, 'charge', '')",
    ]
    database.execute("SET search_path = windlass", *rng.sample(derived, 6))
    repair_all(engine, change=True)
    assert engine.check() == []
    assert repair_all(engine, change=True) == Repaired()
    assert engine.stats().queues == before
    assert engine.get([record.id for record in engine.find(Filter()).records]) == records
    engine.change_queue("shut", QueueChange(paused=False))
    ready = sum(states.get(State.READY, 0) for states in before.values())
    # The unroutable job rests for some seconds, which may be over.
    assert len(set(run_all(engine)) - {three.id}) == ready - 1
