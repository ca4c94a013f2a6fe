"""A file of every earlier format is migrated, and its jobs are read, run and kept as before."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from windlass.core.states import Hold, State
from windlass.engine.contract import Plan, Succeeded, Verdict
from windlass.engine.sqlite.engine import APPLICATION_ID, NEWEST_FORMAT, SQLiteEngine
from windlass.engine.sqlite.statements import migrations
from windlass.testing.contract.world import claim_jobs

#: The format that moved small calls into the record.
RECORD = 12
FIRST_FORMATS = [number for number, _ in migrations() if number < RECORD]

#: Instants are small numbers: 10 is the creation, and 9000000000000 lies far ahead.
_JOBS = """
INSERT INTO jobs (row, id, task, queue, rank, place, state, hold, created_ms, ready_ms, due_ms)
VALUES (1, 'ready', 't', 'q', 0, 1, 'ready', 'none', 10, 10, NULL),
       (2, 'requeued', 't', 'other', 0, 7, 'ready', 'none', 10, 15, NULL),
       (3, 'held', 't', 'q', 0, 3, 'ready', 'unroutable', 10, 10, 9000000000000);
INSERT INTO jobs (row, id, task, queue, rank, place, state, created_ms, ready_ms, attempt, starts,
                  started_ms, finished_ms, keep_until_ms, result_until_ms, session, token,
                  last_token, last_event, result)
VALUES (4, 'running', 't', 'q', 0, 4, 'running', 10, 10, 1, 1,
        11, NULL, NULL, NULL, 's', 'n1', NULL, NULL, NULL),
       (5, 'succeeded', 't', 'q', 0, 5, 'succeeded', 10, 10, 1, 1,
        11, 12, 9000000000000, 9000000000000, 's', NULL, 'n0', 'succeed', x'31');
INSERT INTO payloads VALUES (1, x'61'), (2, x'62'), (3, x'63'), (4, x'64'), (5, x'65');
INSERT INTO sessions (session, expires_ms) VALUES ('s', 9000000000000);
INSERT INTO counters VALUES ('q', 'ready', 2), ('other', 'ready', 1), ('q', 'running', 1),
                            ('q', 'succeeded', 1);
UPDATE meta SET sequence = 7;
"""


def make_file(path: Path, version: int) -> None:
    """Write a file as the format had it: the jobs are there before later migrations come."""
    older = apsw.Connection(str(path))
    for number, text in migrations():
        if number <= version:
            older.execute(text)
            if number == 1:
                older.execute(_JOBS)
    older.pragma("user_version", version)
    older.pragma("application_id", APPLICATION_ID)
    older.close()


@pytest.mark.parametrize("version", FIRST_FORMATS)
def test_the_jobs_of_an_earlier_format(path: Path, engine: SQLiteEngine, version: int) -> None:
    make_file(path, version)
    assert engine.migrate() == NEWEST_FORMAT
    assert engine.check() == []

    records = engine.get(["ready", "requeued", "held", "running", "succeeded"])
    found = {record.id: record for record in records if record is not None}
    assert [record.payload for record in found.values()] == [b"a", b"b", b"c", b"d", b"e"]
    assert found["ready"].hold is Hold.NONE
    assert found["held"].hold is Hold.UNROUTABLE
    assert found["succeeded"].result == b"1"
    ages = engine.stats().oldest_ready_ms
    assert ages["q"] - ages["other"] == 5

    verdict = engine.finish([Succeeded(id="running", token="n1", result=None, result_ttl_ms=0)])
    assert verdict == [Verdict.OK]
    claims = claim_jobs(engine, "new", "n2", Plan(), 10).claims
    assert [(claim.id, claim.payload) for claim in claims] == [("ready", b"a"), ("requeued", b"b")]
    ends = [Succeeded(id=job.id, token="n2", result=b"2", result_ttl_ms=60_000) for job in claims]
    assert engine.finish(ends) == engine.finish(ends) == [Verdict.OK] * 2
    states = [record.state for record in engine.get(["ready", "requeued", "running"]) if record]
    assert states == [State.SUCCEEDED] * 3
    assert engine.check() == []
