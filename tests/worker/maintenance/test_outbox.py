"""The relay of an outbox: what is committed there is put once, whatever fails in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.app.hand import Hand
from tests.contract.variants import fresh_url
from tests.outbox.databases import Shop, postgres_shop, sqlite_shop
from tests.worker.yard import until
from windlass import EngineUnavailable, Job, PayloadTooLarge, State, Task, Unique, Windlass
from windlass.core.ids import new_nonce
from windlass.engine.contract import (
    Engine,
    NewJob,
    Plan,
    QueueChange,
)
from windlass.outbox.connect import open_outbox
from windlass.outbox.record import encode
from windlass.testing.contract.world import claim_jobs
from windlass.testing.faults import Faults
from windlass.worker.maintenance import outbox
from windlass.worker.maintenance.outbox import OutboxRelay

MINUTE_MS = 60_000


@pytest.fixture(params=["postgresql", "sqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    return postgres_shop() if request.param == "postgresql" else sqlite_shop(tmp_path)


@pytest.fixture(params=["sqlite-file"])
def app(request: pytest.FixtureRequest, shop: Shop, tmp_path: Path) -> Iterator[Windlass]:
    url = fresh_url(request.param, tmp_path)
    with Windlass(url, outbox=shop.url.url, enqueue_timeout="2s") as app:
        yield app


on_every_engine = pytest.mark.parametrize(
    ("app", "shop"),
    [("sqlite-file", "sqlite"), ("redis", "postgresql"), ("redis-4", "sqlite")],
    indirect=True,
)


@pytest.fixture
def send(app: Windlass) -> Task[[int], int]:
    @app.task(name="send")
    def send(number: int) -> int:
        return number

    return send


@pytest.fixture
def faults(app: Windlass) -> Faults:
    return Faults(app.engine)


@pytest.fixture
def relay(shop: Shop, faults: Faults) -> Iterator[OutboxRelay]:
    """A relay that looks when the test says so."""
    relay = OutboxRelay(faults.engine, shop.url, ends_engine=False)
    yield relay
    if relay._rows is not None:
        relay._rows.close()


def commit(shop: Shop, enqueue: Callable[[Any], Job[Any] | list[Job[Any]]]) -> list[Job[Any]]:
    """Enqueue in a transaction, and commit it."""
    with shop.connection() as connection:
        found = enqueue(connection)
        connection.commit()
    return found if isinstance(found, list) else [found]


def states(app: Windlass, jobs: list[Job[Any]]) -> list[State | None]:
    return [None if one is None else one.state for one in app.engine.get([job.id for job in jobs])]


# ------------------------------------------------------------------------------------ what is put


@on_every_engine
def test_committed_jobs_are_relayed_in_order(
    app: Windlass, shop: Shop, send: Task[[int], int], relay: OutboxRelay
) -> None:
    jobs = commit(
        shop,
        lambda connection: send.using(connection=connection).enqueue_many(
            (number,) for number in range(30)
        ),
    )
    assert states(app, jobs) == [None] * 30
    assert relay.look() == 0
    assert states(app, jobs) == [State.READY] * 30
    assert shop.waiting() == []
    partitions = {job.id[10:12] for job in jobs}
    if len(partitions) == 1:
        batch = claim_jobs(app.engine, "session", new_nonce(1), Plan(), 30)
        assert [claim.id for claim in batch.claims] == [job.id for job in jobs]


def test_a_rollback_leaves_nothing(
    app: Windlass, shop: Shop, send: Task[[int], int], relay: OutboxRelay
) -> None:
    with shop.connection() as connection:
        job = send.using(connection=connection).enqueue(1)
        assert relay.look() > 0
        connection.rollback()
    assert relay.look() > 0
    assert states(app, [job]) == [None]


def test_the_handle_finds_the_job_after_the_relay(
    app: Windlass, shop: Shop, send: Task[[int], int], relay: OutboxRelay
) -> None:
    (job,) = commit(shop, lambda connection: send.using(connection=connection).enqueue(7))
    assert job.created
    relay.look()
    Hand(app).succeed(7)
    assert job.result(timeout=5) == 7


def test_more_than_a_batch(
    app: Windlass, shop: Shop, send: Task[[int], int], relay: OutboxRelay
) -> None:
    commit(
        shop,
        lambda connection: send.using(connection=connection).enqueue_many(
            (number,) for number in range(1_100)
        ),
    )
    assert [relay.look() for _ in range(3)] == [0, 0, 0]
    assert relay.look() > 0
    assert app.stats().jobs == {State.READY: 1_100}


def test_options_pass(
    app: Windlass, shop: Shop, send: Task[[int], int], relay: OutboxRelay
) -> None:
    options = send.using(priority=7, queue="mail", headers={"trace": "1"}, expires="1h")
    (job,) = commit(shop, lambda connection: options.using(connection=connection).enqueue(7))
    relay.look()
    info = job.info()
    assert (info.priority, info.queue, info.headers) == (7, "mail", {"trace": "1"})
    assert info.expires_at is not None


def test_delays_count_from_the_enqueue(
    app: Windlass, shop: Shop, send: Task[[int], int], relay: OutboxRelay
) -> None:
    within = send.using(run_after="10m", expires="20m")
    (job,) = commit(shop, lambda connection: within.using(connection=connection).enqueue(7))
    (late,) = commit(
        shop, lambda connection: send.using(expires="30s", connection=connection).enqueue(8)
    )
    age_all(shop, MINUTE_MS)
    relay.look()
    info, now_ms = job.info(), app.engine.due_schedules(limit=0).now_ms
    assert info.due_at is not None
    assert info.expires_at is not None
    assert 8 * MINUTE_MS < info.due_at.timestamp() * 1000 - now_ms <= 9 * MINUTE_MS
    assert 18 * MINUTE_MS < info.expires_at.timestamp() * 1000 - now_ms <= 19 * MINUTE_MS
    assert claim_jobs(app.engine, "session", new_nonce(1), Plan(), 10).claims == ()
    assert late.info().state is State.CANCELLED, "it expired in the outbox"


def age_all(shop: Shop, by_ms: int) -> None:
    """Let the rows be older."""
    table = "windlass_outbox_jobs" if shop.is_sqlite else "windlass_outbox.jobs"
    with shop.connection() as connection:
        connection.execute(f"UPDATE {table} SET created_ms = created_ms - {by_ms}")  # noqa: S608  # our own names
        connection.commit()


# ------------------------------------------------------------------------------------------ crashes


@on_every_engine
def test_a_repeat_after_a_crash_puts_nothing_twice(
    app: Windlass, shop: Shop, send: Task[[int], int], relay: OutboxRelay
) -> None:
    """The relay dies after the put, before it deletes the rows."""
    (job,) = commit(shop, lambda connection: send.using(connection=connection).enqueue(7))
    first = OutboxRelay(app.engine, shop.url, ends_engine=False)
    first._settle = lambda *_: first._rows.close()  # type: ignore[method-assign,union-attr]  # it dies here
    first.look()
    assert states(app, [job]) == [State.READY]
    assert shop.waiting() == [job.id]
    Hand(app).succeed(7)
    free(shop)
    relay.look()
    assert shop.waiting() == []
    assert states(app, [job]) == [State.SUCCEEDED]
    assert app.stats().totals["enqueued"] == 1


def free(shop: Shop) -> None:
    """End the leases of rows on SQLite."""
    if shop.is_sqlite:
        with shop.connection() as connection:
            connection.execute("UPDATE windlass_outbox_jobs SET due_ms = 0")
            connection.commit()


def test_an_engine_that_is_away_costs_time_only(
    app: Windlass, shop: Shop, send: Task[[int], int], relay: OutboxRelay, faults: Faults
) -> None:
    (job,) = commit(shop, lambda connection: send.using(connection=connection).enqueue(7))
    faults.refuse("put")
    with pytest.raises(EngineUnavailable):
        relay.look()
    assert shop.waiting() == [job.id]
    faults.lose_reply("put")
    with pytest.raises(EngineUnavailable):
        relay.look()
    assert relay.look() == 0
    assert shop.waiting() == []
    assert states(app, [job]) == [State.READY]


def test_rows_that_were_taken_long_ago_are_not_put(
    app: Windlass,
    shop: Shop,
    send: Task[[int], int],
    relay: OutboxRelay,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process was stopped: another relay has put them, and the jobs may be over and gone."""
    (job,) = commit(shop, lambda connection: send.using(connection=connection).enqueue(7))
    monkeypatch.setattr(outbox, "STALE_S", -1.0)
    with pytest.raises(EngineUnavailable, match="was stopped for seconds"):
        relay.look()
    assert states(app, [job]) == [None]
    monkeypatch.undo()
    relay.look()
    assert states(app, [job]) == [State.READY]


def test_an_outbox_that_is_away_is_logged_once(
    app: Windlass, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    shop = sqlite_shop(folder)
    relay = OutboxRelay(app.engine, shop.url, ends_engine=False)
    (folder / "shop.db").rename(folder / "moved.db")
    assert all(0 < relay.look() <= outbox.AGAIN_S for _ in range(3))
    (folder / "moved.db").rename(folder / "shop.db")
    relay.look()
    relay.look()
    assert relay._rows is not None
    relay._rows.close()
    said = [line.partition(":")[0] for line in caplog.messages]
    assert said == ["cannot read the outbox, retrying", "outbox is available again"]


def test_missing_tables_are_found_later(
    app: Windlass, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    shop = sqlite_shop(folder, is_migrated=False)
    relay = OutboxRelay(app.engine, shop.url, ends_engine=False)
    relay.look()
    relay.look()
    (said,) = caplog.messages
    assert "Run `windlass migrate` once" in said
    rows = open_outbox(shop.url)
    rows.migrate()
    rows.close()
    relay.look()
    assert relay._rows is not None
    relay._rows.close()
    assert "outbox is available again" in caplog.text


def test_the_format_is_checked_again_after_an_outage(
    app: Windlass, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A deployment may have migrated meanwhile."""
    folder = tmp_path / "other"
    folder.mkdir()
    shop = sqlite_shop(folder)
    relay = OutboxRelay(app.engine, shop.url, ends_engine=False)
    relay.look()
    (folder / "shop.db").rename(folder / "moved.db")
    relay.look()
    (folder / "moved.db").rename(folder / "shop.db")
    with shop.connection() as connection:
        connection.execute("INSERT INTO windlass_outbox_format VALUES (2)")
        connection.commit()
    relay.look()
    assert relay._rows is not None
    relay._rows.close()
    away, newer = caplog.messages
    assert "There is no database" in away
    assert "format 2" in newer


def test_a_relay_looks_more_often_while_jobs_arrive(
    shop: Shop, send: Task[[int], int], relay: OutboxRelay
) -> None:
    assert relay.look() > outbox.SOON_S
    commit(shop, lambda connection: send.using(connection=connection).enqueue(7))
    relay.look()
    assert relay.look() == outbox.SOON_S


# ---------------------------------------------------------------------------------------- bad jobs


def insert_bodies(shop: Shop, bodies: dict[str, bytes]) -> None:
    """Insert rows as other versions, or other programs, may have made them."""
    table = "windlass_outbox_jobs" if shop.is_sqlite else "windlass_outbox.jobs"
    mark = "?, ?" if shop.is_sqlite else "%s, %s"
    with shop.connection() as connection:
        for row in bodies.items():
            connection.execute(f"INSERT INTO {table} (id, body) VALUES ({mark})", row)  # noqa: S608  # our own names
        connection.commit()


@on_every_engine
def test_bad_rows_block_no_others(
    app: Windlass, shop: Shop, relay: OutboxRelay, caplog: pytest.LogCaptureFixture
) -> None:
    """Damaged bytes, those of a newer version, and a job that the engine refuses."""
    ids = app.engine.new_ids(2, "send", "default")
    jobs = [NewJob(id, "send", "default", b'{"args":[1]}') for id in ids]
    refused = NewJob(app.engine.new_id("send", "default", None), "send", "default", b"", 0, 10**17)
    bodies = {
        "damaged": b"\x01\xff",
        jobs[0].id: encode(jobs[0]),
        "newer": b"\x02" + encode(jobs[0])[1:],
        refused.id: encode(refused),
        jobs[1].id: encode(jobs[1]),
    }
    insert_bodies(shop, bodies)
    assert relay.look() == 0
    assert [one is None for one in app.engine.get(ids)] == [False, False]
    assert shop.waiting() == ["damaged", "newer", refused.id]
    rows = open_outbox(shop.url)
    state = rows.state()
    rows.close()
    assert (state.waiting, state.refused) == (3, 3)
    assert state.first_refused is not None
    assert (state.first_refused.id, state.first_refused.tries) == ("damaged", 1)
    assert "damaged" in state.first_refused.error
    for id, why in (("damaged", "damaged"), ("newer", "newer windlass"), (refused.id, "run_after")):
        said = f"cannot relay job {id} of the outbox, retrying in 10s: "
        assert [line for line in caplog.messages if line.startswith(said) and why in line]
    assert relay.look() > 0, "they wait"


def test_a_bad_row_is_tried_again_less_and_less(
    app: Windlass, shop: Shop, relay: OutboxRelay, caplog: pytest.LogCaptureFixture
) -> None:
    insert_bodies(shop, {"damaged": b""})
    for _ in range(8):
        relay.look()
        free_now(shop)
    delays = [line.partition("retrying in ")[2].partition(":")[0] for line in caplog.messages]
    assert delays == ["10s", "20s", "40s", "1m20s", "2m40s", "5m20s", "10m", "10m"]


def free_now(shop: Shop) -> None:
    table = "windlass_outbox_jobs" if shop.is_sqlite else "windlass_outbox.jobs"
    with shop.connection() as connection:
        connection.execute(f"UPDATE {table} SET due_ms = 1")  # noqa: S608  # our own names
        connection.commit()


def test_a_job_that_is_too_large_for_the_engine(
    app: Windlass, shop: Shop, send: Task[[int], int], caplog: pytest.LogCaptureFixture
) -> None:
    """An error of another kind, which is not one of the engine."""

    class Small:
        def __init__(self, engine: Engine) -> None:
            self._engine = engine

        def put(self, jobs: list[NewJob]) -> Any:
            if any(job.priority == 1 for job in jobs):
                raise PayloadTooLarge("The call has 2 GB.", size=2, limit=1)
            return self._engine.put(jobs)

    jobs = commit(
        shop,
        lambda connection: [
            send.using(connection=connection, priority=priority).enqueue(7)
            for priority in (0, 1, 0)
        ],
    )
    relay = OutboxRelay(Small(app.engine), shop.url, ends_engine=False)  # type: ignore[arg-type]  # has what is called
    relay.look()
    assert relay._rows is not None
    relay._rows.close()
    assert states(app, jobs) == [State.READY, None, State.READY]
    assert shop.waiting() == [jobs[1].id]
    assert "The call has 2 GB." in caplog.text


class Picky:
    """An engine that refuses jobs with a priority of 1, and tells how often it was asked."""

    def __init__(self, engine: Engine, *, takes_s: float = 0.0) -> None:
        self._engine = engine
        self._takes_s = takes_s
        self.now = 0.0
        self.calls = 0

    def put(self, jobs: list[NewJob]) -> Any:
        self.calls += 1
        self.now += self._takes_s
        if any(job.priority == 1 for job in jobs):
            raise PayloadTooLarge("The call has 2 GB.", size=2, limit=1)
        return self._engine.put(jobs)


def commit_with_bad_one(
    shop: Shop, send: Task[[int], int], number: int, bad: int
) -> list[Job[int]]:
    return commit(
        shop,
        lambda connection: [
            send.using(connection=connection, priority=int(at == bad)).enqueue(at)
            for at in range(number)
        ],
    )


def test_a_bad_row_costs_few_calls(app: Windlass, shop: Shop, send: Task[[int], int]) -> None:
    """Otherwise a slow engine would not get through a batch while the relay has its rows."""
    jobs = commit_with_bad_one(shop, send, 64, bad=20)
    engine = Picky(app.engine)
    relay = OutboxRelay(engine, shop.url, ends_engine=False)  # type: ignore[arg-type]  # has what is called
    relay.look()
    assert engine.calls == 2 * 6 + 1
    assert relay._rows is not None
    relay._rows.close()
    assert shop.waiting() == [jobs[20].id]


def test_a_relay_stops_in_time_while_it_searches_for_a_bad_row(
    app: Windlass, shop: Shop, send: Task[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other relays get the rest at once."""
    jobs = commit_with_bad_one(shop, send, 8, bad=6)
    engine = Picky(app.engine, takes_s=outbox.STALE_S / 2)
    monkeypatch.setattr(outbox, "monotonic", lambda: engine.now)
    relay = OutboxRelay(engine, shop.url, ends_engine=False)  # type: ignore[arg-type]  # has what is called
    relay.look()
    assert shop.waiting() == [job.id for job in jobs[4:]]
    rows = open_outbox(shop.url)
    assert [row.id for row in rows.take(8, 10_000)] == [job.id for job in jobs[4:]]
    for one in (rows, relay._rows):
        assert one is not None
        one.close()


def test_a_full_queue_lets_its_jobs_wait_in_the_outbox(
    app: Windlass,
    shop: Shop,
    send: Task[[int], int],
    relay: OutboxRelay,
    caplog: pytest.LogCaptureFixture,
) -> None:
    app.engine.change_queue("default", QueueChange(max_waiting=1))
    jobs = commit(
        shop,
        lambda connection: [
            send.using(connection=connection, queue=queue).enqueue(7)
            for queue in ("default", "default", "default", "mail")
        ],
    )
    assert relay.look() == 0
    assert states(app, jobs) == [State.READY, None, None, State.READY]
    assert caplog.messages == ["queue default is full, its jobs wait in the outbox"]
    app.engine.change_queue("default", QueueChange(max_waiting=0))
    until(lambda: relay.look() == 0, "the end of the delay")
    assert states(app, jobs) == [State.READY] * 4
    assert shop.waiting() == []


# --------------------------------------------------------------------------------------------- keys


@on_every_engine
def test_keys_are_decided_by_the_relay(
    app: Windlass,
    shop: Shop,
    send: Task[[int], int],
    relay: OutboxRelay,
    caplog: pytest.LogCaptureFixture,
) -> None:
    keyed = send.using(idempotency_key="k")
    first = keyed.enqueue(1)
    same, other = commit(
        shop,
        lambda connection: [
            keyed.using(connection=connection).enqueue(number) for number in (1, 2)
        ],
    )
    assert same.created
    relay.look()
    assert states(app, [first, same, other]) == [State.READY, None, None]
    assert shop.waiting() == []
    assert caplog.messages == [
        f"dropped job {other.id} of task send from the outbox: its idempotency key belongs to job "
        f"{first.id}, which has other arguments"
    ]


def test_a_unique_key_that_is_held(
    app: Windlass, shop: Shop, relay: OutboxRelay, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="report", unique=Unique(on_conflict="raise"))
    def report() -> None: ...

    first = report.enqueue()
    (second,) = commit(shop, lambda connection: report.using(connection=connection).enqueue())
    relay.look()
    assert states(app, [first, second]) == [State.READY, None]
    assert caplog.messages == [
        f"dropped job {second.id} of task report from the outbox: job {first.id} holds its unique "
        "key"
    ]


# --------------------------------------------------------------------------------------- the thread


def commit_number(shop: Shop, send: Task[[int], int], number: int) -> list[Job[Any]]:
    return commit(shop, lambda connection: send.using(connection=connection).enqueue(number))


def is_ready(app: Windlass, jobs: list[Job[Any]]) -> bool:
    return states(app, jobs) == [State.READY] * len(jobs)


def test_the_thread_relays_soon_after_the_commit(
    app: Windlass, shop: Shop, send: Task[[int], int]
) -> None:
    relay = OutboxRelay(app.engine, shop.url, ends_engine=False)
    relay.start()
    try:
        took = []
        for number in range(3):
            jobs = commit_number(shop, send, number)
            began_at = time.monotonic()
            until(partial(is_ready, app, jobs), "the relay")
            took.append(time.monotonic() - began_at)
        assert min(took) < 1.0
    finally:
        relay.stop(10)
    assert not relay._thread.is_alive()


def test_a_failing_relay_continues(
    app: Windlass,
    shop: Shop,
    send: Task[[int], int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(outbox, "AGAIN_S", 0.2)
    real, calls = OutboxRelay.look, []

    def look(self: OutboxRelay) -> float:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("a bug")
        return real(self)

    monkeypatch.setattr(OutboxRelay, "look", look)
    (job,) = commit(shop, lambda connection: send.using(connection=connection).enqueue(7))
    relay = OutboxRelay(app.engine, shop.url, ends_engine=False)
    relay.start()
    until(lambda: states(app, [job]) == [State.READY], "the relay")
    relay.stop(10)
    assert "relay of the outbox failed, retrying" in caplog.text
    assert "RuntimeError: a bug" in caplog.text


def test_many_relays_put_each_job_once(app: Windlass, shop: Shop, send: Task[[int], int]) -> None:
    relays = [OutboxRelay(app.engine, shop.url, ends_engine=False) for _ in range(3)]
    for relay in relays:
        relay.start()
    jobs: list[Job[Any]] = []
    for _ in range(20):
        jobs += commit(
            shop,
            lambda connection: send.using(connection=connection).enqueue_many(
                (number,) for number in range(20)
            ),
        )
    until(partial(is_ready, app, jobs), "the relay")
    for relay in relays:
        relay.stop(10)
    assert shop.waiting() == []
    assert app.stats().totals["enqueued"] == 400
