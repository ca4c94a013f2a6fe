"""The maintenance of an instance of the API, where no other process tends the engine."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from threading import enumerate as list_threads
from typing import Any, cast

import pytest

from tests.app.hand import Hand
from tests.contract.variants import fresh_url
from tests.http.client import Client, LoopThread
from tests.http.shop import add_tasks
from tests.outbox.databases import sqlite_shop
from tests.worker.faulty import Faulty
from tests.worker.yard import until
from windlass import EngineUnavailable, State, Windlass
from windlass.engine.contract import EndedCall, Engine, Tended
from windlass.http import WindlassApi, create_api, maintenance

TWO_WEEKS_MS = 14 * 86_400_000


@pytest.fixture(params=["sqlite-file-normal", "redis-4", "postgres"])
def engine_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


@pytest.fixture
def app(engine_url: str) -> Iterator[Windlass]:
    """With a short lease: after a silence, engines give workers half a lease to beat."""
    with Windlass(engine_url, lease="2s") as app:
        add_tasks(app)
        yield app


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "TEND_S", 0.02)
    monkeypatch.setattr(maintenance, "AGAIN_S", 0.2)


@pytest.fixture
def faulty(app: Windlass) -> Iterator[Faulty]:
    faulty = Faulty(app.engine)
    with app.replace_engine(cast(Engine, faulty)):
        yield faulty


def threads() -> list[str]:
    return [one.name for one in list_threads() if one.name == "windlass-http-maintenance"]


def test_dead_letters_are_logged_and_removed(
    app: Windlass, hand: Hand, api: WindlassApi, caplog: pytest.LogCaptureFixture
) -> None:
    job = app.tasks["shop.mail.send"].enqueue("ann", password="hunter2")
    hand.bury(ValueError("no"))
    with caplog.at_level(logging.WARNING, "windlass.dead_letters"):
        app.engine.clock_offset_ms = TWO_WEEKS_MS
        until(lambda: app.engine.get([job.id]) == [None], "the removal of the dead letter")
    assert [line.partition(";")[0] for line in caplog.messages] == [
        f"removing job {job.id} of task shop.mail.send, dead (exhausted) for longer than dead_ttl"
    ]
    assert "hunter2" not in caplog.text


def test_ended_calls_of_suspended_processes_are_logged(
    app: Windlass, faulty: Faulty, api: WindlassApi, caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([Tended(ended_calls=(EndedCall(client="shop at one", silent_ms=20_345),))])
    with caplog.at_level(logging.WARNING, "windlass.http"):
        faulty.faults["tend"] = lambda real, _: next(answers, None) or real()
        until(lambda: caplog.messages, "the line")
    assert caplog.messages == [
        "ended a call of a suspended process, shop at one: it kept its locks without progress "
        "for 20s"
    ]


def test_jobs_of_an_expired_session_are_ready_again(
    app: Windlass, hand: Hand, api: WindlassApi
) -> None:
    job = app.tasks["shop.mail.send"].enqueue("ann")
    hand.take()
    assert job.info().state is State.RUNNING
    app.engine.clock_offset_ms = 10 * app.settings.lease_ms
    until(lambda: job.info().state is not State.RUNNING, "the end of the claim")


def test_an_outage_is_survived_and_logged_once(
    app: Windlass, hand: Hand, faulty: Faulty, api: WindlassApi, caplog: pytest.LogCaptureFixture
) -> None:
    refused: list[None] = []

    def refuse(_real: Any, _arguments: Any) -> None:
        refused.append(None)
        raise EngineUnavailable("no answer")

    with caplog.at_level(logging.WARNING, "windlass.http"):
        faulty.faults["tend"] = refuse
        until(lambda: len(refused) > 2, "three refused calls")
        assert caplog.messages == ["maintenance: lost connection to engine, retrying: no answer"]
        del faulty.faults["tend"]
        until(lambda: len(caplog.messages) > 1, "the end of the outage")
        seen = faulty.calls.count("tend")
        until(lambda: faulty.calls.count("tend") > seen, "another call")
    assert caplog.messages[1:] == [f"maintenance: engine at {app.engine.location} is back"]


def test_a_frozen_engine_stops_neither_requests_nor_the_shutdown(
    app: Windlass, faulty: Faulty, loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "STOP_S", 0.1)
    entered, thawed = Event(), Event()

    def freeze(real: Any, _arguments: Any) -> Any:
        entered.set()
        thawed.wait(20)
        return real()

    async def make() -> WindlassApi:
        return create_api(app)

    faulty.faults["tend"] = freeze
    api = loop.run(make())
    running = api.running()
    loop.run(running.__aenter__())
    try:
        assert entered.wait(10)
        assert Client(api, loop).get("/v1/stats").status_code == 200
        began = time.monotonic()
        loop.run(running.__aexit__(None, None, None))
        assert time.monotonic() - began < 5
    finally:
        thawed.set()
    until(lambda: not threads(), "the end of the thread")


def test_the_thread_ends_with_the_instance(app: Windlass, loop: LoopThread) -> None:
    async def run() -> list[str]:
        async with create_api(app).running():
            return threads()

    assert loop.run(run()) == ["windlass-http-maintenance"]
    assert threads() == []


def test_an_instance_relays_the_outbox(engine_url: str, tmp_path: Path, loop: LoopThread) -> None:
    """All workers of the app may be of the worker protocol, which relay nothing."""
    shop = sqlite_shop(tmp_path)

    async def run(app: Windlass) -> None:
        async with create_api(app).running():
            with shop.connection() as connection:
                send = app.task_named("shop.mail.send").using(connection=connection)
                job = send.enqueue("ann")
                connection.commit()
            await asyncio.to_thread(until, lambda: app.engine.get([job.id]) != [None], "the relay")

    with Windlass(engine_url, outbox=shop.url.url) as app:
        loop.run(run(app))
    assert shop.waiting() == []
    assert "outbox-relay" not in [one.name for one in list_threads()]
