"""The record of a job: small calls stand in it, large ones in a table of their own, and it stores
nothing that is a default or that other columns say."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.engine.conftest import new_job
from windlass.core.states import Event
from windlass.core.unique import OnConflict
from windlass.engine.contract import (
    JobChange,
    NewJob,
    Plan,
    Released,
    Succeeded,
    UniqueKey,
    Verdict,
)
from windlass.engine.sql.transaction import end_mark
from windlass.engine.sqlite.engine import SQLiteEngine
from windlass.engine.sqlite.transaction import SMALL_CALL
from windlass.testing.contract.world import claim_jobs

SMALL, LARGE = b"s" * SMALL_CALL, b"l" * (SMALL_CALL + 1)
JOBS = 2_000


def stored_payloads(path: Path) -> int:
    looker = apsw.Connection(str(path))
    number = len(looker.execute("SELECT job FROM payloads").fetchall())
    looker.close()
    return number


@pytest.mark.parametrize(("payload", "stored"), [(SMALL, 0), (LARGE, 1), (b"", 0)])
def test_where_a_call_stands(path: Path, engine: SQLiteEngine, payload: bytes, stored: int) -> None:
    engine.put([new_job(payload=payload)])
    assert stored_payloads(path) == stored
    (record,) = engine.get(["job-000000"])
    assert record is not None
    assert record.payload == payload
    (claim,) = claim_jobs(engine, "s", "n", Plan(), 5).claims
    (again,) = claim_jobs(engine, "s", "n", Plan(), 5).claims
    assert claim.payload == again.payload == payload
    assert engine.check() == []


def test_small_and_large_calls_are_claimed_together(engine: SQLiteEngine) -> None:
    payloads = [SMALL, LARGE, b"", LARGE + b"2", b"3"]
    engine.put([new_job(number, payload=payload) for number, payload in enumerate(payloads)])
    claims = claim_jobs(engine, "s", "n", Plan(), 10).claims
    assert [claim.payload for claim in claims] == payloads


def test_a_call_that_changes_its_size_changes_its_table(path: Path, engine: SQLiteEngine) -> None:
    engine.put([new_job(payload=SMALL)])
    for payload, stored in ((LARGE, 1), (LARGE + b"2", 1), (SMALL, 0)):
        engine.change_jobs([JobChange(id="job-000000", payload=payload)])
        assert stored_payloads(path) == stored
        (record,) = engine.get(["job-000000"])
        assert record is not None
        assert record.payload == payload
        assert engine.check() == []


def test_a_replaced_call_changes_its_table(path: Path, engine: SQLiteEngine) -> None:
    key = UniqueKey(key="k", on_conflict=OnConflict.REPLACE)
    for number, (payload, stored) in enumerate(((SMALL, 0), (LARGE, 1), (SMALL, 0))):
        engine.put([new_job(number, payload=payload, unique=key)])
        assert stored_payloads(path) == stored
    (claim,) = claim_jobs(engine, "s", "n", Plan(), 5).claims
    assert claim.payload == SMALL
    assert engine.check() == []


def test_an_end_is_recognised_by_token_and_event(engine: SQLiteEngine) -> None:
    engine.put([new_job()])
    claim_jobs(engine, "s", "n", Plan(), 1)
    end = Succeeded(id="job-000000", token="n", result=b"1", result_ttl_ms=60_000)
    other_token = Succeeded(id="job-000000", token="m", result=b"1", result_ttl_ms=60_000)
    other_event = Released(id="job-000000", token="n", started=True)
    assert engine.finish([end]) == [Verdict.OK]
    assert engine.finish([end, other_token, other_event]) == [
        Verdict.REPEATED,
        Verdict.STALE,
        Verdict.STALE,
    ]


def test_the_mark_of_an_end_needs_six_bytes() -> None:
    marks = {end_mark(f"{token:040x}", event) for token in range(1_000) for event in Event}
    assert len(marks) == 1_000 * len(Event)
    assert max(marks) < 1 << 48


def bytes_used(path: Path) -> int:
    looker = apsw.Connection(str(path))
    pages = int(looker.pragma("page_count")) - int(looker.pragma("freelist_count"))
    size = pages * int(looker.pragma("page_size"))
    looker.close()
    return size


def test_a_job_takes_few_bytes(path: Path, engine: SQLiteEngine) -> None:
    """For a call of 68 bytes, and a task and an id as users have them."""
    engine.migrate()
    empty = bytes_used(path)
    call = b'{"version":1,"task":"benchmarks.tasks.nothing","call":{"args":[10]}}'
    engine.put(
        [
            NewJob(
                id=f"01m7pqstcv00{number:014}",
                task="benchmarks.tasks.nothing",
                queue="default",
                payload=call,
            )
            for number in range(JOBS)
        ]
    )
    queued = (bytes_used(path) - empty) / JOBS
    for turn in range(JOBS // 50):
        nonce = f"{turn:040}"
        claims = claim_jobs(engine, "host.12345.957c8da6576f8716", nonce, Plan(), 50).claims
        engine.finish(
            [Succeeded(id=c.id, token=nonce, result=b"null", result_ttl_ms=60_000) for c in claims]
        )
    finished = (bytes_used(path) - empty) / JOBS
    assert queued < 255
    assert finished < 360  # the index of ended jobs has their state
