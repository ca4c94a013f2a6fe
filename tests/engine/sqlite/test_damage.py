"""Inconsistent rows stop nothing else, `check` reports them, and `repair` fixes them."""

from __future__ import annotations

import random
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from tests.engine.conftest import new_job, repair_all
from windlass.core.states import Hold, Reason, State
from windlass.engine.contract import (
    Buried,
    Claim,
    CopyCode,
    Filter,
    Plan,
    QueueChange,
    Repaired,
    ScheduleChange,
    Succeeded,
    UniqueKey,
    Unroutable,
)
from windlass.engine.sqlite.engine import SQLiteEngine
from windlass.testing.contract.world import claim_jobs

JOBS = 20


def vandalise(path: Path, *statements: str) -> None:
    vandal = apsw.Connection(str(path))
    for statement in statements:
        vandal.execute(statement)
    vandal.close()


def success(claim: Claim) -> Succeeded:
    return Succeeded(id=claim.id, token=claim.token, result=b"1", result_ttl_ms=60_000)


def run_all(engine: SQLiteEngine, plan: Plan | None = None) -> list[str]:
    ran: list[str] = []
    for number in range(5):
        claims = claim_jobs(engine, "runner", f"{number:032}", plan or Plan(), 100).claims
        engine.finish([success(claim) for claim in claims])
        ran += [claim.id for claim in claims]
        engine.tend()
    return ran


#: what -> statements, and how many of the jobs can be run before the repair
DAMAGE = {
    "no payload": ("UPDATE jobs SET call = NULL WHERE row = 3", JOBS),
    "payload of nothing": ("INSERT INTO payloads VALUES (999, x'')", JOBS),
    "failure of nothing": (
        "INSERT INTO failures VALUES (999, 1, 1, 'retry', 1, 's', x'', 1)",
        JOBS,
    ),
    "step of nothing": ("INSERT INTO steps VALUES (999, 'charge', x'')", JOBS),
    "counter too low": ("UPDATE counters SET number = 0 WHERE state = 'ready'", JOBS),
    "counter too high": ("UPDATE counters SET number = 90 WHERE state = 'ready'", JOBS),
    "counter missing": ("DELETE FROM counters", JOBS),
    "counter of nothing": ("INSERT INTO counters VALUES ('ghost', 'dead', 3)", JOBS),
    "due and ready": ("UPDATE jobs SET due_ms = 1 WHERE row = 3", JOBS),
    "due and ended": ("UPDATE jobs SET due_ms = 1 WHERE state = 'succeeded'", JOBS),
    "kept and ready": ("UPDATE jobs SET keep_until_ms = 1 WHERE row = 3", JOBS),
    "not kept": ("UPDATE jobs SET keep_until_ms = NULL WHERE state = 'succeeded'", JOBS),
    "sequence": ("UPDATE meta SET sequence = 5", JOBS),
    "no session": ("DELETE FROM sessions", JOBS),
    "unique key of nothing": ("INSERT INTO unique_keys VALUES ('t', 'k', 'ghost')", JOBS),
    "unique key of another": ("INSERT INTO unique_keys VALUES ('t', 'k', 'job-000004')", JOBS),
    "lost unique key": ("DELETE FROM unique_keys", JOBS),
    "death of nothing": ("INSERT INTO deaths VALUES (999, 1, 1)", JOBS),
    "group of nothing": (
        "INSERT INTO dead_groups VALUES (9, 'aa', '', 'q', 't', 2)",
        JOBS,
    ),
    "line of nothing": ("INSERT INTO lines VALUES ('a', 0, '', '', -500, 0)", JOBS),
    "line of another job": ("UPDATE lines SET rank = 7, place = 77", JOBS),
    "lost line": ("DELETE FROM lines", 0),
    "schedule without body": ("DELETE FROM schedule_bodies", JOBS),
    "body without schedule": ("DELETE FROM schedules", JOBS),
}


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE jobs SET due_ms = NULL WHERE hold = 'paused'",
        "UPDATE jobs SET due_ms = 1 WHERE hold = 'paused'; DELETE FROM counters",
        "UPDATE jobs SET hold = NULL WHERE hold = 'paused'",
    ],
)
def test_held_jobs_of_a_paused_task_are_repaired(
    path: Path, engine: SQLiteEngine, damage: str
) -> None:
    jobs = [new_job(number, task="paused") for number in range(3)]
    engine.put(jobs)
    engine.pause_task("paused")
    assert not claim_jobs(engine, "early", "0", Plan(), 9).claims
    vandalise(path, damage)
    assert engine.check()
    assert repair_all(engine, change=True).fixed
    assert engine.check() == []
    assert not claim_jobs(engine, "early", "1", Plan(), 9).claims
    assert engine.check() == []
    holds = {record.hold for record in engine.get([job.id for job in jobs]) if record}
    assert holds == {Hold.PAUSED}
    assert engine.resume_task("paused") == 3
    assert sorted(run_all(engine)) == sorted(job.id for job in jobs)


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_stops_nothing_and_is_repaired(path: Path, engine: SQLiteEngine, what: str) -> None:
    statement, before_repair = DAMAGE[what]
    engine.put([new_job(100), new_job(101), new_job(102, unique=UniqueKey(key="own"))])
    one, *_ = claim_jobs(engine, "early", "0", Plan(), 3).claims
    engine.finish([success(one)])
    schedule = ScheduleChange(
        name="nightly", expected="", revision="r", due_ms=1, note=b"n", body=b"b"
    )
    engine.change_schedules([schedule])
    jobs = [new_job(number) for number in range(JOBS)]
    engine.put(jobs)
    assert engine.check() == []
    assert repair_all(engine, change=False) == Repaired()
    vandalise(path, statement)
    assert engine.check()
    would = repair_all(engine, change=False)
    assert would.fixed
    assert not would.left
    assert repair_all(engine, change=False) == would

    ran = run_all(engine)
    assert len(ran) == before_repair
    engine.put([new_job(200)])
    engine.put([new_job(201, unique=UniqueKey(key="k"))])
    engine.find(Filter())
    engine.stats()
    engine.due_schedules()

    repair_all(engine, change=True)
    assert engine.check() == []
    assert repair_all(engine, change=True) == Repaired()
    engine.clock_offset_ms = 10_000
    engine.beat([])
    engine.clock_offset_ms += 3_000
    engine.beat([])
    expected = {job.id for job in jobs} | {"job-000200", "job-000201"}
    assert expected <= {*ran, *run_all_again(engine)}


def run_all_again(engine: SQLiteEngine) -> list[str]:
    claims = claim_jobs(engine, "later", "1", Plan(), 100).claims
    engine.finish([success(claim) for claim in claims])
    return [claim.id for claim in claims]


def test_copies_are_stored_behind_a_sequence_that_lags(path: Path, engine: SQLiteEngine) -> None:
    jobs = [new_job(number) for number in range(3)]
    engine.put(jobs)
    found = [one for one in engine.read_copies([job.id for job in jobs]) if one is not None]
    copies = [
        replace(one, record=replace(one.record, id=f"copy-{at}")) for at, one in enumerate(found)
    ]
    vandalise(path, "UPDATE meta SET sequence = 1")
    assert engine.put_copies(copies) == [CopyCode.STORED] * 3
    assert engine.check() == []


def test_a_job_without_a_payload_is_given_out_to_be_buried(
    path: Path, engine: SQLiteEngine
) -> None:
    engine.put([new_job()])
    vandalise(path, "UPDATE jobs SET call = NULL")
    (claim,) = claim_jobs(engine, "s", "n", Plan(), 1).claims
    assert claim.payload == b""
    engine.finish([Buried(id=claim.id, token="n", reason=Reason.UNDECODABLE, error=b"")])
    assert "becomes a dead letter" in repair_all(engine, change=True).fixed[0]
    assert engine.check() == []
    (record,) = engine.get([claim.id])
    assert record is not None
    assert record.state is State.DEAD


def test_what_runs_is_not_purged(path: Path, engine: SQLiteEngine) -> None:
    engine.put([new_job()])
    (claim,) = claim_jobs(engine, "s", "n", Plan(), 1).claims
    vandalise(path, "UPDATE jobs SET keep_until_ms = 1, due_ms = 1")
    engine.tend()
    claim_jobs(engine, "other", "n", Plan(), 1)
    assert engine.finish([success(claim)])[0] == "ok"
    assert engine.stats().totals["orphans"] == 1  # the due time; the purge visits ended jobs only
    assert engine.check() == []


def test_what_cannot_be_repaired_is_told(path: Path, engine: SQLiteEngine) -> None:
    engine.put([new_job()])
    vandalise(path, "UPDATE jobs SET state = 'lost'")
    done = repair_all(engine, change=True)
    assert done.left == ("Job job-000000 is in state lost, which does not exist.",)


def test_an_index_of_the_file_is_rebuilt(path: Path, engine: SQLiteEngine) -> None:
    """Its entries are in another order than the declared one."""
    engine.put([new_job(number, priority=number % 3) for number in range(JOBS)])
    engine.shutdown()
    vandalise(
        path,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET sql = replace(sql, 'suspect, rank', 'rank, suspect') "
        "WHERE name = 'jobs_ready'",
    )
    assert "The file is damaged" in "".join(engine.check())
    assert "indexes are rebuilt" in "".join(repair_all(engine, change=True).fixed)
    assert engine.check() == []


@pytest.mark.parametrize("seed", range(12))
def test_anything_that_follows_from_records_can_be_repaired(
    path: Path, engine: SQLiteEngine, seed: int
) -> None:
    engine.change_queue("aged", QueueChange(ageing_ms=60_000))
    engine.change_queue("shut", QueueChange(paused=True))
    queues = ["q", "aged", "shut", "q+gpu"] * 5
    engine.put([new_job(number, queue=queue) for number, queue in enumerate(queues)])
    engine.put([new_job(50, run_in_ms=3_600_000), new_job(51, unique=UniqueKey(key="k"))])
    one, two, three, *_ = claim_jobs(engine, "busy", "0", Plan(), 6).claims
    engine.finish(
        [
            success(one),
            Buried(id=two.id, token="0", reason=Reason.REJECTED, error=b"no"),
            Unroutable(id=three.id, token="0"),
        ]
    )
    before, rng = engine.stats().queues, random.Random(seed)
    records = engine.get([record.id for record in engine.find(Filter()).records])
    derived = [
        "DELETE FROM lines WHERE line = 'q'",
        "UPDATE lines SET place = place + 3",
        "INSERT OR REPLACE INTO lines VALUES ('aged', 0, '', '', -9, 1)",
        "INSERT OR REPLACE INTO lines VALUES ('shut', 0, '', '', -9, 1)",
        "UPDATE counters SET number = number + 3 WHERE queue = 'aged'",
        "DELETE FROM counters WHERE state = 'running'",
        "INSERT OR REPLACE INTO counters VALUES ('none', 'dead', 2)",
        "DELETE FROM unique_keys",
        "INSERT OR REPLACE INTO unique_keys VALUES ('t', 'x', 'job-000001')",
        "DELETE FROM sessions",
        "UPDATE meta SET sequence = 3",
        "UPDATE deaths SET at_ms = 1",
        "UPDATE dead_groups SET jobs = 7",
        "INSERT OR REPLACE INTO payloads VALUES (998, x'00')",
    ]
    vandalise(path, *rng.sample(derived, 6))
    repair_all(engine, change=True)
    assert engine.check() == []
    assert repair_all(engine, change=True) == Repaired()
    assert engine.stats().queues == before
    assert engine.get([record.id for record in engine.find(Filter()).records]) == records
    engine.change_queue("shut", QueueChange(paused=False))
    ready = sum(states.get(State.READY, 0) for states in before.values())
    assert len(run_all(engine, Plan(labels=("gpu",)))) == ready - 1  # one is unroutable


#: Undoes the migrations of the record and of the indexes, as far as earlier ones look at them.
BEFORE_THE_RECORD = (
    *(f"DROP INDEX jobs_{name}" for name in ("ready", "suspect", "parked", "ended")),
    "INSERT INTO payloads SELECT row, call FROM jobs WHERE call IS NOT NULL",
    *(f"ALTER TABLE jobs DROP COLUMN {name}" for name in ("hold", "last_end", "call")),
    "ALTER TABLE jobs ADD COLUMN hold TEXT NOT NULL DEFAULT 'none'",
    "ALTER TABLE jobs ADD COLUMN result_until_ms INTEGER",
    *(f"ALTER TABLE jobs ADD COLUMN {name} TEXT" for name in ("last_token", "last_event")),
    "CREATE INDEX jobs_ready ON jobs (queue, suspect, rank, place)",
    "CREATE INDEX jobs_suspect ON jobs (queue)",
    "CREATE INDEX jobs_unroutable ON jobs (task)",
    "CREATE INDEX jobs_kept ON jobs (keep_until_ms) WHERE keep_until_ms IS NOT NULL",
    "CREATE INDEX jobs_dead ON jobs (id, task) WHERE state = 'dead'",
)


#: What the migration to documents and the audit trail added.
BEFORE_DOCUMENTS = (
    "DROP TABLE documents",
    "DROP TABLE audit",
    "ALTER TABLE sessions DROP COLUMN command",
)

#: What the migration to the history added.
BEFORE_HISTORY = (
    *(f"DROP TABLE {table}" for table in ("enqueued", "measures", "samples", "reporters")),
    "ALTER TABLE meta DROP COLUMN sampled_ms",
)

#: What the migration to groups of dead jobs added.
BEFORE_GROUPS = ("DROP VIEW dead_jobs", "DROP TABLE dead_groups", "DROP TABLE deaths")

#: What the migration to steps added.
BEFORE_STEPS = ("DROP TABLE steps",)


def test_an_older_file_gets_an_index_of_lines(path: Path, engine: SQLiteEngine) -> None:
    engine.change_queue("aged", QueueChange(ageing_ms=60_000))
    engine.change_queue("once", QueueChange(ageing_ms=1_000))
    engine.change_queue("shut", QueueChange(paused=True))
    queues = ["q", "aged", "shut", "q+gpu", "once"] * 5
    engine.put([new_job(number, queue=queue) for number, queue in enumerate(queues)])
    engine.clock_offset_ms += 10_000
    engine.put([new_job(90 + n, queue=queue, priority=n) for n, queue in enumerate(queues)])
    engine.change_queue("once", QueueChange(ageing_ms=0))
    engine.shutdown()
    vandalise(
        path,
        *BEFORE_THE_RECORD,
        "DROP TABLE lines",
        "ALTER TABLE jobs DROP COLUMN held_because",
        *BEFORE_DOCUMENTS,
        *BEFORE_HISTORY,
        *BEFORE_GROUPS,
        *BEFORE_STEPS,
        "PRAGMA user_version = 7",
    )
    assert engine.check() == []
    assert len(run_all(engine, Plan(labels=("gpu",)))) == 40
