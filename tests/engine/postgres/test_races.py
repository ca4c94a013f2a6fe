"""Transactions that meet between two statements of one another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables
from windlass.core.states import Reason, State
from windlass.engine.contract import (
    Beat,
    Buried,
    ChangeCode,
    NewJob,
    Placed,
    Plan,
    PutCode,
    QueueChange,
    Revival,
    Share,
    Succeeded,
    UniqueKey,
    Verdict,
    Waiter,
)
from windlass.engine.postgres.engine import PostgresEngine
from windlass.engine.postgres.statements import PostgresStatements
from windlass.engine.postgres.transaction import Transaction, lock_number
from windlass.engine.postgres.verbs import claim, hot
from windlass.testing.contract.world import claim_jobs

SOON_S = 20.0
_WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        yield database


class InThread:
    """A call in a thread."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.value = self._call()
        except BaseException as error:  # noqa: BLE001  # compared by the test
            self.value = error

    def end(self) -> Any:
        self._thread.join(SOON_S)
        assert not self._thread.is_alive()
        return self.value


@contextmanager
def locked_table(database: Database, table: str) -> Iterator[None]:
    """Keep all other transactions from writing to a table."""
    with database.server.connect(database.name) as connection, connection.transaction():
        connection.execute(f"LOCK TABLE windlass.{table} IN EXCLUSIVE MODE".encode())
        yield


def await_waiting(database: Database, number: int) -> None:
    """Wait until this number of transactions wait for locks."""
    while len(database.execute(_WAITING)) < number:
        pass


def await_next_ms(database: Database) -> int:
    """Wait until the clock of the server has another millisecond, and return that."""
    clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    before = database.execute(clock)
    while (now := database.execute(clock)) == before:
        pass
    [(now_ms,)] = now
    return int(now_ms)


# ------------------------------------------------------------------------------------- settings


def test_settings_that_change_between_the_statements_of_a_put(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, operator = database.open(), database.open()
    engine.put([new_job(1)])
    put = hot.put

    def put_late(db: PostgresStatements, clock: str, queues: str, jobs: Sequence[NewJob]) -> Any:
        db.flush()  # the transaction has begun
        operator.change_queue("other", QueueChange(paused=True))
        return put(db, clock, queues, jobs)

    with monkeypatch.context() as patch:
        patch.setattr(hot, "put", put_late)
        engine.put([new_job(2)])
    (record,) = engine.get([new_job(2).id])
    assert record is not None
    assert engine.check() == []


# -------------------------------------------------------------------------------- dead processes


@pytest.mark.parametrize("is_new", [True, False], ids=["new-session", "known-session"])
@pytest.mark.parametrize("end", ["close", "lose"])
def test_a_session_that_ends_while_its_last_claim_is_committed(
    database: Database, monkeypatch: pytest.MonkeyPatch, end: str, is_new: bool
) -> None:
    """The server runs on with the claim of a process that was killed."""
    if is_new:  # the first claim of a session takes the long way
        monkeypatch.setattr(hot, "lines_for", lambda *_: None)
    engine, supervisor = database.open(), database.open()
    engine.put([new_job(1), new_job(2)])
    if not is_new:
        claim_jobs(engine, "session", "nonce-1", Plan(), 1)
    with locked_table(database, "deltas"):
        claiming = InThread(lambda: claim_jobs(engine, "session", "nonce-2", Plan(), 1))
        await_waiting(database, 1)
        ending = InThread(lambda: end_session(supervisor, end))
        await_waiting(database, 2)
    claiming.end()
    assert not isinstance(ending.end(), BaseException)
    records = supervisor.get([new_job(1).id, new_job(2).id])
    assert [record and record.state for record in records] == [State.READY] * 2


def end_session(engine: PostgresEngine, end: str) -> object:
    if end == "lose":
        return engine.lose("session", "vanished")
    return engine.close("session", [], "killed")


def test_a_session_that_ends_during_its_first_heartbeat_is_not_listed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, supervisor = database.open(), database.open()
    start = Transaction.start

    def meet(tx: Transaction, name: str, *values: Any) -> Any:
        if name == "introduce_session":
            tx.flush()
            supervisor.close("session", [], "killed")
        return start(tx, name, *values)

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "start", meet)
        engine.beat([Beat(session="session", info=b"info")])
    assert not engine.beat([Beat(session="session", info=b"info")])[0].alive
    assert engine.introductions("").infos == {}
    engine.beat([Beat(session="other", info=b"one")])
    engine.beat([Beat(session="other", info=b"two")])
    assert engine.introductions("").infos == {"other": b"two"}


# ----------------------------------------------------------------------------------- locked jobs


def test_workers_do_not_spin_while_a_due_job_is_locked(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction of a caller locks a scheduled job whose unique key it has enqueued again."""
    engine = database.open()
    engine.put([new_job(1, run_in_ms=60_000)])
    engine.clock_offset_ms += 60_000
    looks: list[int | None] = []
    promote_and_reap = claim.promote_and_reap

    def look(tx: Transaction) -> int | None:
        looks.append(promote_and_reap(tx))
        return looks[-1]

    monkeypatch.setattr(claim, "promote_and_reap", look)
    with database.server.connect(database.name) as connection, connection.transaction():
        connection.execute("SELECT 1 FROM windlass.jobs FOR UPDATE")
        assert engine.wait([Waiter(session="session", plan=Plan())], 200) == []
        batch = claim_jobs(engine, "session", "nonce-1", Plan(), 1)
    assert set(looks) == {claim.LOCKED_MS}
    assert len(looks) <= 1 + 200 / claim.LOCKED_MS
    assert (batch.claims, batch.next_in_ms) == ((), claim.LOCKED_MS)
    assert claim_jobs(engine, "session", "nonce-2", Plan(), 1).claims


def test_jobs_that_others_are_taking_change_no_shares(database: Database) -> None:
    """The claim looks again, and its second look must not use a turn twice."""
    engine = database.open()
    engine.put([new_job(number, queue="often") for number in range(10)])
    engine.put([new_job(10 + number, queue="seldom") for number in range(10)])
    plan = Plan(queues=("often", "seldom"), shares=(Share(0, 2, b"\1\0\0\0"),))
    with database.server.connect(database.name) as connection, connection.transaction():
        connection.execute("SELECT 1 FROM windlass.jobs WHERE row <= 3 FOR UPDATE")
        claims = claim_jobs(engine, "session", "nonce-1", plan, 4).claims
    assert sorted(one.queue for one in claims) == ["often", "often", "often", "seldom"]


def test_a_revival_locks_keys_before_jobs(database: Database) -> None:
    """As a put does: each would otherwise wait for what the other one holds."""
    engine = database.open()
    jobs = [new_job(number, unique=UniqueKey(key=f"key-{number}")) for number in range(5)]
    engine.put(jobs)
    for claim_ in claim_jobs(engine, "session", "nonce-1", Plan(), 5).claims:
        dead = Buried(id=claim_.id, token=claim_.token, error=b"e", reason=Reason.REJECTED)
        engine.finish([dead])
    key = min(lock_number("windlass", "key", "t", f"key-{number}") for number in range(5))
    with database.server.connect(database.name) as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [key])
        revival = InThread(lambda: engine.revive([Revival(id=job.id) for job in jobs]))
        await_waiting(database, 1)
        others = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
        assert len(connection.execute(f"{others} AND granted".encode()).fetchall()) == 0
        free = "SELECT 1 FROM windlass.jobs FOR UPDATE NOWAIT"
        assert len(connection.execute(free).fetchall()) == 5
    assert revival.end() == [ChangeCode.DONE] * 5


def test_a_job_that_waits_for_its_key_is_created_after_the_wait(database: Database) -> None:
    """Otherwise it would seem to live at the same time as the holder before it."""
    engine, other = database.open(), database.open()
    holder, job = (new_job(number, unique=UniqueKey(key="key")) for number in range(2))
    engine.put([holder])
    [claim_] = claim_jobs(engine, "session", "nonce-1", Plan(), 1).claims
    with database.server.connect(database.name) as connection, connection.transaction():
        number = lock_number("windlass", "key", "t", "key")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [number])
        put = InThread(lambda: other.put([job]))
        await_waiting(database, 1)
        await_next_ms(database)
        engine.finish([Succeeded(id=claim_.id, token=claim_.token)])
    assert put.end() == [Placed(job.id, PutCode.CREATED)]
    [ended, created] = engine.get([holder.id, job.id])
    assert ended is not None
    assert created is not None
    assert ended.finished_ms is not None
    assert ended.finished_ms <= created.created_ms


@pytest.mark.parametrize(
    "outcome",
    [Succeeded(id="", token=""), Buried(id="", token="", error=b"e", reason=Reason.REJECTED)],
)
def test_a_claim_that_waits_for_its_job_ends_after_the_wait(
    database: Database, outcome: Succeeded | Buried
) -> None:
    """A put that has locked the job meanwhile was told that the job runs."""
    engine = database.open()
    job = new_job(0)
    engine.put([job])
    [claim_] = claim_jobs(engine, "session", "nonce-1", Plan(), 1).claims
    end = msgspec.structs.replace(outcome, id=claim_.id, token=claim_.token)
    with database.server.connect(database.name) as connection, connection.transaction():
        connection.execute("SELECT 1 FROM windlass.jobs FOR UPDATE")
        finish = InThread(lambda: engine.finish([end]))
        await_waiting(database, 1)
        now_ms = await_next_ms(database)
    assert finish.end() == [Verdict.OK]
    [ended] = engine.get([job.id])
    assert ended is not None
    assert ended.finished_ms is not None
    assert ended.finished_ms >= now_ms


# ------------------------------------------------------------------------------------- isolation


@pytest.mark.parametrize("option", ["", "&pooler=transaction"])
def test_the_isolation_of_a_role_does_not_matter(database: Database, option: str) -> None:
    """Locks are taken by one statement, and the next one must see what others have committed."""
    database.execute(
        f"ALTER DATABASE {database.name} SET default_transaction_isolation = 'serializable'"
    )
    url = database.server.url(database.name)
    engine = database.open_url(f"{url}{option}" if "?" in url else f"{url}?{option[1:]}")
    asked = "SELECT current_setting('transaction_isolation')"
    assert engine._write(lambda tx: tx.fetch(tx.start_text(asked))) == [("read committed",)]
