"""The findings of `examine` on a SQLite file: each line, on a file in that state."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from tests.engine.conftest import new_job
from windlass.engine.contract import EngineOptions, Finding, Grade
from windlass.engine.sqlite import doctor
from windlass.engine.sqlite.engine import SQLiteEngine


def found(engine: SQLiteEngine) -> dict[str, Finding]:
    findings = engine.examine()
    by_subject = {finding.subject: finding for finding in findings}
    assert len(by_subject) == len(findings)
    return by_subject


def test_every_line_is_there(engine: SQLiteEngine) -> None:
    engine.put([new_job()])
    findings = found(engine)
    assert list(findings) == [
        *("version", "file system", "permissions", "room", "log", "format"),
        *("journal", "durability", "size"),
    ]
    quiet = findings.keys() - {"file system", "room"}  # these depend on the machine
    assert {findings[subject].grade for subject in quiet} == {Grade.OK}


def test_a_file_that_is_not_there_is_not_made(engine: SQLiteEngine, path: Path) -> None:
    finding = found(engine)["file"]
    assert finding.grade is Grade.PROBLEM
    assert str(path) in finding.text
    assert not path.exists()


def test_a_memory_is_gone_with_its_process() -> None:
    engine = SQLiteEngine(None, EngineOptions())
    assert found(engine)["durability"].grade is Grade.ADVICE


@pytest.mark.parametrize(
    ("version", "grade"),
    [
        ("3.40.1", Grade.PROBLEM),
        ("3.44.5", Grade.PROBLEM),
        ("3.44.6", Grade.OK),
        ("3.50.6", Grade.PROBLEM),
        ("3.50.7", Grade.OK),
        ("3.51.2", Grade.PROBLEM),
        ("3.51.3", Grade.OK),
        ("3.54.1", Grade.OK),
    ],
)
def test_the_version(version: str, grade: Grade) -> None:
    finding = doctor.examine_version(version)
    assert finding.grade is grade
    assert version in finding.text


@pytest.mark.parametrize(
    ("kind", "grade"),
    [("ext4", Grade.OK), ("", Grade.OK), ("tmpfs", Grade.ADVICE), ("nfs4", Grade.PROBLEM)],
)
def test_the_file_system(
    engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch, kind: str, grade: Grade
) -> None:
    """The file system is faked: a test cannot mount."""
    engine.put([new_job()])
    monkeypatch.setattr(doctor, "file_system_of", lambda _folder: kind)
    assert found(engine)["file system"].grade is grade


@pytest.mark.parametrize(
    ("mode", "grade"), [(0o640, Grade.ADVICE), (0o604, Grade.ADVICE), (0o620, Grade.PROBLEM)]
)
@pytest.mark.parametrize("suffix", ["", "-wal", ".lock"])
def test_permissions(
    engine: SQLiteEngine, path: Path, suffix: str, mode: int, grade: Grade
) -> None:
    engine.put([new_job()])
    file = path.with_name(path.name + suffix)
    file.chmod(mode)
    finding = found(engine)["permissions"]
    assert finding.grade is grade
    assert file.name in finding.text


@pytest.mark.parametrize(
    ("free", "grade"),
    [(10**6, Grade.PROBLEM), (5 * 10**8, Grade.ADVICE), (10**10, Grade.OK)],
)
def test_room(free: int, grade: Grade) -> None:
    assert doctor.examine_room(free, Path("/srv")).grade is grade


def test_a_log_that_grows(
    engine: SQLiteEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "LONG_LOG", 300_000)
    engine.put([new_job()])
    assert found(engine)["log"].grade is Grade.OK
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN; SELECT count(*) FROM jobs").fetchall()
    for number in range(20):
        engine.put([new_job(number, payload=os.urandom(10_000))])
    finding = found(engine)["log"]
    reader.close()
    assert finding.grade is Grade.ADVICE
    assert f"{path.name}-wal has grown to" in finding.text


def test_a_journal_that_was_changed(engine: SQLiteEngine, path: Path) -> None:
    engine.put([new_job()])
    engine.shutdown()
    other = apsw.Connection(str(path))
    other.pragma("journal_mode", "delete")
    other.close()
    finding = found(engine)["journal"]
    assert finding.grade is Grade.PROBLEM
    assert "the journal mode is delete" in finding.text


def test_durability_normal(path: Path) -> None:
    engine = SQLiteEngine(path, EngineOptions(), durability="normal")
    engine.put([new_job()])
    finding = found(engine)["durability"]
    engine.shutdown()
    assert finding.grade is Grade.ADVICE
    assert "a power loss loses the last commits" in finding.text


def test_room_inside_that_is_not_used(
    engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "MUCH_UNUSED", 500_000)
    ids = [f"job-{number:06d}" for number in range(20)]
    engine.put([new_job(number, payload=os.urandom(100_000)) for number in range(20)])
    assert found(engine)["size"].grade is Grade.OK
    engine.cancel(ids)
    engine.discard(ids)
    finding = found(engine)["size"]
    assert finding.grade is Grade.ADVICE
    assert "run VACUUM" in finding.text


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("CREATE TABLE other (x)", "of another program"),
        ("PRAGMA application_id = 0x57494E44; PRAGMA user_version = 99", "by a newer windlass"),
    ],
)
def test_a_file_of_another_program(
    engine: SQLiteEngine, path: Path, script: str, words: str
) -> None:
    other = apsw.Connection(str(path))
    other.execute(script)
    other.close()
    before = path.read_bytes()
    finding = found(engine)["file"]
    assert finding.grade is Grade.PROBLEM
    assert words in finding.text
    assert path.read_bytes() == before


def test_a_file_that_is_damaged(engine: SQLiteEngine, path: Path) -> None:
    path.write_bytes(b"this is no database, but long enough to be taken for one" * 100)
    finding = found(engine)["file"]
    assert finding.grade is Grade.PROBLEM
    assert "not a healthy SQLite database" in finding.text
