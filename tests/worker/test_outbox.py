"""Workers relay an outbox: what was committed runs once, whatever is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.outbox.databases import Shop, postgres_shop, sqlite_shop
from tests.postgres_server import PostgresServer, private_server
from tests.worker.apps.scripted import Script
from tests.worker.yard import PROJECT, Yard, until
from windlass import State, Windlass


@pytest.fixture(params=["postgresql", "sqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    if request.param == "postgresql":
        return postgres_shop()
    folder = tmp_path / "data"
    folder.mkdir()
    return sqlite_shop(folder)


@pytest.fixture
def script(url: str, shop: Shop) -> Iterator[Script]:
    """The tasks of an app with the outbox."""
    with Windlass(url, outbox=shop.url.url) as app:
        yield Script(app)


def start(yard: Yard, shop: Shop, **options: Any) -> Any:
    return yard.start(environment={"WINDLASS_OUTBOX": shop.url.url}, **options)


def commit(shop: Shop, script: Script, *labels: str) -> list[str]:
    with shop.connection() as connection:
        within = script.plain.using(connection=connection)
        ids = [job.id for job in within.enqueue_many((label, []) for label in labels)]
        connection.commit()
    return ids


def test_a_worker_runs_what_was_committed(yard: Yard, shop: Shop, script: Script) -> None:
    start(yard, shop)
    with shop.connection() as connection:
        script.plain.using(connection=connection).enqueue("gone", [])
        connection.rollback()
    (id,) = commit(shop, script, "kept")
    job = script.plain.job(id)
    yard.await_start("kept")
    assert job.result(timeout=20) == "kept done"
    until(lambda: not shop.waiting(), "the job left the outbox")  # the job may end before that
    assert [line.label for line in yard.events("start")] == ["kept"]


@pytest.mark.local
def test_a_thousand_commits_and_a_thousand_rollbacks(
    yard: Yard, shop: Shop, script: Script
) -> None:
    """Exactly the committed ones run, with several workers, and one killed worker."""
    workers = [start(yard, shop, slots=10) for _ in range(2)]
    kept = []
    with shop.connection() as connection:
        within = script.plain.using(connection=connection)
        for number in range(1_000):
            connection.execute("INSERT INTO orders VALUES ('x')")
            kept.append(within.enqueue(f"kept-{number}", []).id)
            connection.commit()
            within.enqueue(f"gone-{number}", [])
            connection.rollback()
            if number == 500:
                workers[0].destroy()
    until(lambda: yard.count(State.SUCCEEDED) == 1_000, "the end of the jobs", 60)
    started = [line.label for line in yard.events("start")]
    assert {label for label in started if label.startswith("gone")} == set()
    assert set(started) == {f"kept-{number}" for number in range(1_000)}
    until(lambda: shop.waiting() == [], "the end of the lease", 60)
    assert yard.app.stats().totals["enqueued"] == 1_000
    assert yard.count(State.SUCCEEDED) == len(kept)


@pytest.mark.local
@pytest.mark.parametrize("options", [(), ("--rollback",)], ids=["committed", "not committed"])
def test_a_killed_producer(yard: Yard, shop: Shop, url: str, options: tuple[str, ...]) -> None:
    """Killed after its commit, or just before."""
    arguments = [url, shop.url.url, "killed", *options]
    producer = subprocess.Popen(
        [sys.executable, "-m", "tests.worker.producer_process", *arguments],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert producer.stdout is not None
    id = producer.stdout.readline().strip()
    producer.kill()
    producer.wait()
    producer.stdout.close()
    assert start(yard, shop, burst=True).wait() == 0
    labels = [line.label for line in yard.events("end")]
    assert labels == ([] if options else ["killed"])
    record = yard.app.engine.get([id])[0]
    assert (record is None) == bool(options)


@pytest.mark.local
def test_a_burst_relays_first(yard: Yard, shop: Shop, script: Script) -> None:
    labels = [f"job-{number}" for number in range(20)]
    commit(shop, script, *labels)
    assert start(yard, shop, burst=True).wait() == 0
    assert sorted(line.label for line in yard.events("end")) == sorted(labels)


@pytest.mark.local
def test_a_burst_does_not_wait_for_an_outbox_that_is_away(yard: Yard, tmp_path: Path) -> None:
    yard.plain("direct")
    worker = yard.start(
        burst=True, environment={"WINDLASS_OUTBOX": f"sqlite:///{tmp_path}/absent.db"}
    )
    assert worker.wait() == 0
    assert [line.label for line in yard.events("end")] == ["direct"]
    assert "cannot read the outbox, retrying: There is no database" in worker.log()


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    server = private_server()
    yield server
    server.end()


@pytest.mark.local
def test_a_worker_outlives_an_outage_of_the_outbox(
    yard: Yard, url: str, server: PostgresServer
) -> None:
    """Other jobs run meanwhile."""
    shop = postgres_shop(server)
    worker = start(yard, shop)
    with Windlass(url, outbox=shop.url.url) as app:
        script = Script(app)
        commit(shop, script, "before")
        yard.await_start("before")
        server.stop("immediate")
        worker.await_log("cannot read the outbox, retrying")
        yard.plain("meanwhile")
        yard.await_start("meanwhile")
        server.start()
        commit(shop, script, "after")
        yard.await_start("after")
    worker.await_log("outbox is available again: postgresql://127.0.0.1")
    assert worker.stop() == 0


@pytest.mark.local
def test_a_worker_in_this_process_relays_too(shop: Shop, script: Script) -> None:
    app = script.nothing.app
    with app.worker():
        with shop.connection() as connection:
            job = script.nothing.using(connection=connection).enqueue()
            connection.commit()
        assert job.result(timeout=20) is None
    assert shop.waiting() == []
