"""The file: its permissions, owner and format, and the findings of `check`."""

from __future__ import annotations

import os
import stat
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from tests.engine.conftest import OpenEngine, hold_the_lock, new_job
from windlass.app import Windlass
from windlass.core.states import Reason, State
from windlass.engine.contract import (
    Beat,
    Buried,
    EngineOptions,
    Filter,
    Plan,
    ScheduleChange,
    Succeeded,
    Waiter,
)
from windlass.engine.sqlite import database, files
from windlass.engine.sqlite.engine import APPLICATION_ID, NEWEST_FORMAT, SQLiteEngine
from windlass.engine.sqlite.statements import migrations
from windlass.engine.url import open_engine as open_by_url
from windlass.errors import EngineError, EngineUnavailable, FormatTooNew, SettingError
from windlass.testing.contract.world import claim_jobs


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_file_belongs_to_its_owner_alone(path: Path, engine: SQLiteEngine) -> None:
    before = os.umask(0)
    try:
        engine.put([new_job()])
        engine.wait([Waiter("worker", Plan(queues=("other",)))], timeout_ms=1)
        folder = path.with_name("jobs.db.wake")
        sockets = list(folder.iterdir())
        assert {mode_of(file) for file in path.parent.glob("jobs.db*") if file.is_file()} == {0o600}
        assert mode_of(folder) == 0o700
        assert [mode_of(socket) for socket in sockets] == [0o600, 0o600]  # and its plan
    finally:
        os.umask(before)


def test_waiting_leaves_no_socket_behind(path: Path, engine: SQLiteEngine) -> None:
    engine.wait([Waiter("worker", Plan())], timeout_ms=1)
    engine.shutdown()
    assert list(path.with_name("jobs.db.wake").iterdir()) == []


@pytest.mark.parametrize("version", [0, NEWEST_FORMAT])
def test_a_file_of_another_program_is_left_alone(
    path: Path, engine: SQLiteEngine, version: int
) -> None:
    foreign = apsw.Connection(str(path))
    foreign.execute("CREATE TABLE theirs (x)")
    foreign.pragma("user_version", version)
    foreign.close()
    before = path.read_bytes()
    with pytest.raises(EngineError, match=r"jobs\.db is a SQLite database of another"):
        engine.put([new_job()])
    engine.shutdown()
    assert b"CREATE TABLE jobs" not in path.read_bytes()
    assert before[:16] == path.read_bytes()[:16]


def test_a_file_that_is_no_database_is_said_to_be_none(path: Path, engine: SQLiteEngine) -> None:
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(EngineError, match="not a healthy SQLite database"):
        engine.put([new_job()])


def test_a_newer_format_is_refused(path: Path, engine: SQLiteEngine) -> None:
    engine.migrate()
    engine.shutdown()
    newer = apsw.Connection(str(path))
    newer.pragma("user_version", 99)
    newer.close()
    with pytest.raises(FormatTooNew, match=rf"knows up to {NEWEST_FORMAT}\)\. Upgrade"):
        engine.stats()


def test_an_older_format_is_brought_up_to_date(path: Path, engine: SQLiteEngine) -> None:
    older = apsw.Connection(str(path))
    older.execute(dict(migrations())[1])
    older.execute("INSERT INTO sessions (session, expires_ms) VALUES ('old', 9000000000000)")
    older.pragma("user_version", 1)
    older.pragma("application_id", APPLICATION_ID)
    older.close()
    engine.beat([Beat(session="new", info=b"me")])
    found = {record.session: record.info for record in engine.sessions()}
    assert found == {"old": b"", "new": b"me"}


def test_migrating_again_changes_nothing(path: Path, engine: SQLiteEngine) -> None:
    assert engine.migrate() == NEWEST_FORMAT
    engine.put([new_job()])
    assert engine.migrate() == NEWEST_FORMAT
    assert engine.get(["job-000000"]) != [None]
    assert apsw.Connection(str(path)).pragma("application_id") == APPLICATION_ID


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1)])
def test_durability_is_the_one_of_the_url(path: Path, durability: str, level: int) -> None:
    engine = open_by_url(f"sqlite:///{path}?durability={durability}", EngineOptions())
    engine.put([new_job()])
    assert isinstance(engine, SQLiteEngine)
    level_found = engine._database.read(lambda connection: connection.pragma("synchronous"))
    mode_found = apsw.Connection(str(path)).pragma("journal_mode")
    engine.shutdown()
    assert (level_found, mode_found) == (level, "wal")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:///", "Three slashes"),
        ("sqlite://host/jobs.db", "Three slashes"),
        ("sqlite://user:secret@host/jobs.db", r"found 'sqlite://\*\*\*@host/jobs.db'"),
        ("sqlite:///jobs.db?durability=maybe", "durability=full or durability=normal"),
        ("sqlite:///jobs.db?speed=high", "knows the option durability, found speed"),
        (
            "mongodb://user:secret@host/db",
            r"begins with sqlite:///.*, found 'mongodb://\*\*\*@host",
        ),
        ("sqlit:///jobs.db", "found 'sqlit:///jobs.db'"),
    ],
)
def test_a_wrong_url_is_told_what_is_right(url: str, message: str) -> None:
    with pytest.raises(EngineError, match=message) as raised:
        open_by_url(url, EngineOptions())
    assert "secret" not in str(raised.value)
    with pytest.raises(SettingError, match=message):
        Windlass(url)  # before anything is enqueued


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    engine = SQLiteEngine(tmp_path / "absent" / "jobs.db", EngineOptions())
    with pytest.raises(EngineError, match=r"The folder .*absent .* does not exist"):
        engine.stats()


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    engine = SQLiteEngine(tmp_path, EngineOptions())
    with pytest.raises(EngineError, match=r"found the folder .*for example .*jobs\.db"):
        engine.put([new_job()])


def test_looking_takes_no_lock(path: Path, engine: SQLiteEngine, open_engine: OpenEngine) -> None:
    engine.put([new_job()])
    with hold_the_lock(path):
        assert open_engine().get(["job-000000"]) != [None]


def test_the_first_use_of_a_locked_file_has_a_deadline(path: Path, engine: SQLiteEngine) -> None:
    path.touch()
    with hold_the_lock(path), pytest.raises(EngineUnavailable, match="holds its lock") as raised:
        engine.put([new_job()])
    assert raised.value.seconds == 0.5
    assert raised.value.location == str(path)
    assert raised.value.unsent


def test_a_lock_of_another_program_says_how_long_it_was_tried(
    path: Path, engine: SQLiteEngine
) -> None:
    engine.put([new_job()])
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    words = r"jobs\.db could not be used within 0\.\d s \(.*\): another program holds a lock"
    with pytest.raises(EngineUnavailable, match=words) as raised:
        engine.put([new_job(1)])
    assert raised.value.unsent
    assert raised.value.seconds == pytest.approx(0.5, abs=0.4)
    other.close()
    assert engine.get(["job-000001"]) == [None]


def test_a_network_file_system_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "file_system_of", lambda _folder: "nfs4")
    engine = SQLiteEngine(tmp_path / "jobs.db", EngineOptions())
    with pytest.raises(EngineError, match="network file system"):
        engine.put([new_job()])


def test_the_file_system_of_a_folder_is_known() -> None:
    assert files.file_system_of(Path("/proc/self")) == "proc"


Damage = Callable[[apsw.Connection], object]


def a_schedule() -> ScheduleChange:
    return ScheduleChange(
        name="nightly", expected="", revision="r", due_ms=1, note=b"n", body=b"body"
    )


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("UPDATE jobs SET call = NULL", "has no payload"),
        ("INSERT INTO payloads VALUES (999, x'00')", "row 999, which is no job"),
        ("INSERT INTO payloads VALUES (1, x'00')", "row 1, which is no job with a large call"),
        ("UPDATE counters SET number = 7", "counts 7 jobs as ready, but there are 1"),
        ("DELETE FROM counters", "counts 0 jobs as ready, but there are 1"),
        ("UPDATE jobs SET hold = 'unroutable'", "its due time is not set"),
        ("UPDATE jobs SET starts = 3", "started 3 times, but its budgets account for 0"),
        ("UPDATE jobs SET place = 999", "beyond the sequence"),
        ("UPDATE jobs SET state = 'lost'", "which does not exist"),
        ("UPDATE jobs SET keep_until_ms = 1", "its time to be kept is 1"),
        ("UPDATE jobs SET state = 'running', token = 't', session = 's'", "which is unknown"),
        ("INSERT INTO failures VALUES (999, 1, 1, 'retry', 1, 's', x'', 1)", "row 999"),
        ("UPDATE jobs SET hold = 'unroutable', due_ms = 1, state = 'scheduled'", "is held as"),
        ("DELETE FROM schedule_bodies", "Schedule nightly has no body"),
        ("DELETE FROM schedules", "row 1, which is no schedule"),
        ("INSERT INTO unique_keys VALUES ('t', 'k', 'job-000000')", "which has another one"),
        ("UPDATE jobs SET unique_key = 'k', unique_until = 'end'", "does not lead to it"),
    ],
)
def test_check_finds_damage(path: Path, engine: SQLiteEngine, statement: str, finding: str) -> None:
    engine.put([new_job()])
    engine.change_schedules([a_schedule()])
    assert engine.check() == []
    vandal = apsw.Connection(str(path))
    vandal.execute(statement)
    vandal.close()
    assert any(finding in problem for problem in engine.check()), engine.check()


def test_a_running_job_without_a_token_cannot_be_written(path: Path, engine: SQLiteEngine) -> None:
    engine.put([new_job()])
    vandal = apsw.Connection(str(path))
    with pytest.raises(apsw.ConstraintError):
        vandal.execute("UPDATE jobs SET state = 'running'")
    vandal.close()


def test_a_page_of_jobs_reads_no_results(engine: SQLiteEngine) -> None:
    engine.put([new_job(number) for number in range(20)])
    for claim in claim_jobs(engine, "s", "n", Plan(), 20).claims:
        big = Succeeded(id=claim.id, token=claim.token, result=b"x" * 500_000, result_ttl_ms=60_000)
        engine.finish([big])
    tracemalloc.start()
    page = engine.find(Filter(state=State.SUCCEEDED))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [record.has_result for record in page.records] == [True] * 20
    assert peak < 500_000


def test_nothing_is_left_of_what_is_gone(path: Path, engine: SQLiteEngine) -> None:
    """Records, payloads, histories, keys, sessions and counters: all are removed in the end."""
    for number in range(3):
        engine.put([new_job(number, queue=f"q{number}", idempotency_key=f"key-{number}")])
    claims = claim_jobs(engine, "s", "n", Plan(), 3).claims
    engine.finish([Succeeded(id=claims[0].id, token="n", result=b"1", result_ttl_ms=1)])
    buried = [
        Buried(id=claim.id, token="n", reason=Reason.REJECTED, error=b"") for claim in claims[1:]
    ]
    engine.finish(buried)
    engine.close("s", (), "ended")
    engine.discard([claims[1].id])
    for _ in range(3):
        engine.clock_offset_ms += 20 * 24 * 60 * 60 * 1000
        engine.tend()
    looker = apsw.Connection(str(path))
    for table in ("jobs", "payloads", "failures", "idempotency", "sessions", "counters"):
        assert list(looker.execute(f"SELECT * FROM {table}")) == [], table  # noqa: S608  # our names
    looker.close()


def test_a_log_that_a_large_transaction_made_long_is_cut(path: Path, engine: SQLiteEngine) -> None:
    log, most = path.with_name("jobs.db-wal"), database.LOG_BYTES
    engine.migrate()
    jobs = [new_job(n, payload=bytes(1024 * 1024)) for n in range(1, most // (1024 * 1024) + 9)]
    engine.put(jobs)  # ends with a checkpoint
    assert log.stat().st_size > most
    engine.put([new_job()])
    assert log.stat().st_size <= most
    assert len(engine.find(Filter()).records) == len(jobs) + 1
