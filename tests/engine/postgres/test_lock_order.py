"""Two calls that lock the same names run in turn: the server never has to end one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import pytest

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables
from tests.engine.postgres.test_races import InThread, await_waiting
from windlass.engine.contract import (
    DocumentChange,
    JobCopy,
    KeyCopy,
    NewJob,
    ScheduleChange,
    UniqueKey,
)
from windlass.engine.postgres.engine import PostgresEngine
from windlass.engine.postgres.transaction import lock_number

Call = Callable[[], Sequence[object]]

SCHEMA: Final = "windlass"
NAMES: Final = ("a", "b")


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        yield database


# ------------------------------------------------------------- calls that lock two names in turn


def unique_job(number: int, key: str) -> NewJob:
    return new_job(number, unique=UniqueKey(key=key))


def put(engine: PostgresEngine, number: int, keys: Sequence[str]) -> Call:
    return partial(engine.put, [unique_job(10 * number + at, key) for at, key in enumerate(keys)])


def put_copies(engine: PostgresEngine, number: int, keys: Sequence[str]) -> Call:
    return partial(
        engine.put_copies, [copy_of(unique_job(10 * number + at, k)) for at, k in enumerate(keys)]
    )


def copy_of(job: NewJob) -> JobCopy:
    """The copy of a job of another database."""
    with with_tables() as source:
        engine = source.open()
        engine.put([job])
        (copy,) = engine.read_copies([job.id])
        assert copy is not None
        return copy


def put_keys(engine: PostgresEngine, number: int, keys: Sequence[str]) -> Call:
    ids = [new_job(10 * number + at).id for at, _ in enumerate(keys)]
    return partial(
        engine.put_keys,
        [
            KeyCopy(task="t", key=key, id=job_id, fingerprint="", expires_ms=1 << 50)
            for key, job_id in zip(keys, ids, strict=True)
        ],
    )


def fire(engine: PostgresEngine, number: int, keys: Sequence[str]) -> Call:
    """Fire schedules of different names, whose jobs have the same keys."""
    jobs = [unique_job(10 * number + at, key) for at, key in enumerate(keys)]
    return partial(engine.change_schedules, [change_schedule(f"schedule-{number}", number, jobs)])


def change_schedules(engine: PostgresEngine, number: int, names: Sequence[str]) -> Call:
    return partial(engine.change_schedules, [change_schedule(name, number, []) for name in names])


def change_schedule(name: str, number: int, jobs: Sequence[NewJob]) -> ScheduleChange:
    return ScheduleChange(
        name=name,
        expected="",
        revision=str(number),
        due_ms=None,
        body=b"",
        note=b"",
        jobs=tuple(jobs),
    )


def change_documents(engine: PostgresEngine, number: int, keys: Sequence[str]) -> Call:
    return partial(engine.change_documents, [change_document("kind", key, number) for key in keys])


def change_kinds(engine: PostgresEngine, number: int, kinds: Sequence[str]) -> Call:
    return partial(
        engine.change_documents, [change_document(kind, str(number), number) for kind in kinds]
    )


def change_document(kind: str, key: str, number: int) -> DocumentChange:
    return DocumentChange(kind=kind, key=key, expected="", revision=str(number), body=b"")


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (put, ("key", "t")),
        (put_copies, ("key", "t")),
        (put_keys, ("key", "t")),
        (fire, ("key", "t")),
        (change_schedules, ("schedule",)),
        (change_documents, ("document", "kind")),
        (change_kinds, ("documents",)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_calls_that_name_the_same_names_in_opposite_orders(
    database: Database,
    call: Callable[[PostgresEngine, int, Sequence[str]], Call],
    kind: tuple[str, ...],
) -> None:
    """The first call waits for the second name in order. If it had not locked the first name
    before, the second call would lock that one, and both would wait for each other."""
    engine = database.open(timeout_ms=20_000)
    engine.put([new_job()])
    before = deadlocks(database)
    numbers = {lock_number(SCHEMA, *kind, name): name for name in NAMES}
    ordered = [name for _, name in sorted(numbers.items())]
    calls = call(engine, 1, ordered[::-1]), call(engine, 2, ordered)
    with database.server.connect(database.name) as other, other.transaction():
        other.execute(b"SELECT pg_advisory_xact_lock(%d)" % max(numbers))
        first = InThread(calls[0])
        await_waiting(database, 1)
        second = InThread(calls[1])
        await_waiting(database, 2)
    results: list[Any] = [first.end(), second.end()]
    assert not [result for result in results if isinstance(result, BaseException)]
    assert deadlocks(database) == before
    assert engine.check() == []


def deadlocks(database: Database) -> list[str]:
    """What the server has logged about deadlocks in a database."""
    lines = database.server.log().splitlines()
    return [line for line in lines if f"@{database.name} " in line and "deadlock detected" in line]
