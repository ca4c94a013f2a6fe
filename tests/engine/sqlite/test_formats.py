"""A file of every earlier format is migrated, and its jobs are read, run and kept as before."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from windlass.core.history import MINUTE_MS, WIDTH
from windlass.core.states import Hold, State
from windlass.engine.contract import (
    AuditEntry,
    Beat,
    ChangeCode,
    DeadLabel,
    DocumentChange,
    Measure,
    NewJob,
    Plan,
    SessionCommand,
    Succeeded,
    Verdict,
)
from windlass.engine.sqlite.engine import APPLICATION_ID, NEWEST_FORMAT, SQLiteEngine
from windlass.engine.sqlite.statements import migrations
from windlass.testing.contract.world import StandingStill, claim_jobs

#: The format that moved small calls into the record.
RECORD = 12
#: The format before the history.
DOCUMENTS = 13
#: The format before groups of dead jobs.
HISTORY = 14
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
    assert engine.finish(ends) == [Verdict.OK] * 2
    assert engine.finish(ends) == [Verdict.REPEATED] * 2
    states = [record.state for record in engine.get(["ready", "requeued", "running"]) if record]
    assert states == [State.SUCCEEDED] * 3
    assert engine.check() == []


def test_a_file_without_documents_gets_them(path: Path, engine: SQLiteEngine) -> None:
    make_file(path, RECORD)
    assert engine.command(["s"], SessionCommand.QUIET) == [True]
    (pulse,) = engine.beat([Beat(session="s", held=("running", "ready"))])
    assert (pulse.command, pulse.lost) == (SessionCommand.QUIET, ("ready",))
    made = DocumentChange(kind="kind", key="key", expected="", revision="1", body=b"body")
    assert engine.change_documents([made]) == [True]
    engine.add_audit([AuditEntry(id="a", body=b"entry")])
    assert len(engine.list_documents("kind")) == len(engine.list_audit()) == 1


def test_a_file_without_a_history_gets_one(path: Path, engine: SQLiteEngine) -> None:
    """The total of enqueued jobs continues."""
    engine.clock_offset_ms = StandingStill(MINUTE_MS)  # all in one minute
    make_file(path, DOCUMENTS)
    older = apsw.Connection(str(path))
    older.execute("INSERT INTO totals VALUES ('enqueued', 5)")
    older.close()
    engine.put([NewJob(id=id, task="t", queue="q+gpu", payload=b"{}") for id in ("a", "b")])
    stats = engine.stats()
    assert (stats.totals["enqueued"], stats.enqueued) == (7, {("q", "t"): 2})
    engine.record("worker", 1, [Measure(queue="q", task="t", counts=(1,) * WIDTH)])
    engine.tend()
    page = engine.history(2 * MINUTE_MS)
    assert [row.counts for row in page.measures] == [(3, *(1,) * (WIDTH - 1))]
    assert [sample.queue for sample in page.samples] == ["other", "q"]
    assert engine.check() == []


def test_dead_jobs_of_a_file_without_groups_are_in_groups_without_a_fingerprint(
    path: Path, engine: SQLiteEngine
) -> None:
    make_file(path, HISTORY)
    older = apsw.Connection(str(path))
    older.execute(
        "INSERT INTO jobs (row, id, task, queue, rank, place, state, created_ms, attempt, starts, "
        "finished_ms, keep_until_ms, session) "
        "SELECT 100 + value, 'dead-' || value, 't', 'q+gpu', 0, 6, 'dead', 10, 1, 1, "
        "20 + value, 9000000000000, CASE value WHEN 1 THEN NULL ELSE 'host.1.ab@v1' END "
        "FROM json_each('[1, 2, 3]'); "
        "UPDATE jobs SET call = x'61' WHERE state = 'dead'; "
        "UPDATE meta SET sequence = 200; INSERT INTO counters VALUES ('q+gpu', 'dead', 3)"
    )
    older.close()
    found = engine.dead_tallies().tallies
    assert [(one.fingerprint, one.release, one.queue, one.number) for one in found] == [
        ("", "v1", "q", 2),
        ("", "", "q", 1),
    ]
    assert [(one.first_ms, one.last_ms, one.example) for one in found] == [
        (22, 23, "dead-3"),
        (21, 21, "dead-1"),
    ]
    labels = [DeadLabel(id="dead-2", finished_ms=22, fingerprint="aa")]
    assert engine.label_dead(labels) == [ChangeCode.DONE]
    assert [one.number for one in engine.dead_tallies([""]).tallies] == [1, 1]
    assert engine.check() == []
