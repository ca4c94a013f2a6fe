"""Puts of many jobs: groups of plain jobs, and jobs of all other kinds between them."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.engine.conftest import new_job
from windlass import EngineError
from windlass.core.durations import LATEST_MS
from windlass.core.states import State
from windlass.engine.contract import Filter, NewJob, Plan, PutCode, QueueChange, UniqueKey
from windlass.engine.sqlite.engine import SQLiteEngine
from windlass.engine.sqlite.statements import repeat_values
from windlass.engine.sqlite.transaction import SMALL_CALL
from windlass.testing.contract.world import claim_jobs

LARGE = b"x" * (SMALL_CALL + 1)
CREATED = PutCode.CREATED


def codes(engine: SQLiteEngine, jobs: list[NewJob]) -> list[PutCode]:
    placed = engine.put(jobs)
    assert [one.id for one in placed] == [job.id for job in jobs]
    return [one.code for one in placed]


def claimed_ids(engine: SQLiteEngine) -> list[str]:
    return [claim.id for claim in claim_jobs(engine, "s", "n", Plan(), 500).claims]


@pytest.mark.parametrize("number", [2, 9, 10, 11, 25])
def test_groups_and_what_is_left_of_them(engine: SQLiteEngine, number: int) -> None:
    jobs = [new_job(at) for at in range(number)]
    assert codes(engine, jobs) == [CREATED] * number
    assert engine.stats().queues == {jobs[0].queue: {State.READY: number}}
    assert engine.stats().totals["enqueued"] == number
    assert claimed_ids(engine) == [job.id for job in jobs]
    assert engine.check() == []


def test_a_repeat_among_new_jobs_is_stored_once(engine: SQLiteEngine) -> None:
    known = [new_job(at, payload=LARGE if at % 2 else b"{}") for at in range(0, 30, 3)]
    engine.put(known)
    jobs = [new_job(at, payload=LARGE if at % 2 else b"{}") for at in range(30)]
    assert codes(engine, [*jobs, jobs[4]]) == [CREATED] * 31
    assert codes(engine, jobs) == [CREATED] * 30
    assert engine.stats().totals["enqueued"] == 30
    assert engine.check() == []
    fresh = [job.id for job in jobs if job not in known]
    assert claimed_ids(engine) == [job.id for job in known] + fresh


def test_a_call_of_repeats_wakes_and_counts_nothing(engine: SQLiteEngine) -> None:
    jobs = [new_job(at) for at in range(20)]
    engine.put(jobs)
    assert len(claimed_ids(engine)) == 20
    engine.put(jobs)
    assert engine.stats().totals["enqueued"] == 20
    assert engine.check() == []


def test_jobs_of_all_kinds_keep_their_order(engine: SQLiteEngine) -> None:
    engine.change_queue("aged", QueueChange(ageing_ms=1_000))
    jobs = [
        new_job(0),
        new_job(1, unique=UniqueKey(key="k")),
        new_job(2, payload=LARGE),
        new_job(3, idempotency_key="i"),
        new_job(4, queue="aged"),
        new_job(5, priority=1),
        new_job(6, run_in_ms=60_000),
        new_job(7, expires_in_ms=60_000),
    ]
    assert codes(engine, jobs) == [CREATED] * 8
    assert claimed_ids(engine) == [f"job-{at:06}" for at in (5, 0, 1, 2, 3, 4, 7)]
    (scheduled,) = engine.find(Filter(state=State.SCHEDULED)).records
    assert scheduled.id == "job-000006"
    assert engine.check() == []


def test_a_full_queue_refuses_only_its_own_jobs(engine: SQLiteEngine) -> None:
    engine.change_queue("full", QueueChange(max_waiting=2))
    jobs = [new_job(at, queue="full" if at % 2 else "q") for at in range(8)]
    assert codes(engine, jobs) == [*[CREATED] * 5, PutCode.FULL, CREATED, PutCode.FULL]
    assert engine.check() == []


def test_a_job_with_an_impossible_time_stores_none(engine: SQLiteEngine) -> None:
    with pytest.raises(EngineError, match="run_after_ms of job job-000001"):
        engine.put([new_job(0), new_job(1, run_after_ms=LATEST_MS + 1)])
    assert engine.get(["job-000000"]) == [None]


def test_a_sequence_that_lags_behind_catches_up(path: Path, engine: SQLiteEngine) -> None:
    engine.put([new_job(at) for at in range(20)])
    vandal = apsw.Connection(str(path))
    vandal.execute("UPDATE meta SET sequence = 5")
    vandal.close()
    assert codes(engine, [new_job(at) for at in range(20, 40)]) == [CREATED] * 20
    assert claimed_ids(engine) == [f"job-{at:06}" for at in range(40)]
    assert engine.stats().totals["orphans"] == 1
    assert engine.check() == []


def test_the_parameters_of_repeated_values_go_on() -> None:
    text = "INSERT INTO t (a, b, c) VALUES (?1, ?2, ?1)\nON CONFLICT DO NOTHING"
    assert repeat_values(text, 2) == (
        "INSERT INTO t (a, b, c) VALUES (?1, ?2, ?1), (?3, ?4, ?3)\nON CONFLICT DO NOTHING"
    )
