"""Long polls over real connections: a client closes its connection, and a server stops."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.http.client import LoopThread
from tests.http.test_server import Served
from tests.http.worker_protocol.remote import TASKS
from tests.http.worker_protocol.test_long_polls import await_polls
from tests.worker.yard import until
from windlass import State, Windlass
from windlass.http import ApiOptions, WindlassApi
from windlass.http.worker_protocol.claim_service import ClaimService
from windlass.http.worker_protocol.long_polls import LongPolls


@pytest.fixture
def api(app: Windlass, options: ApiOptions, loop: LoopThread) -> WindlassApi:
    """An API that a server runs."""

    async def make() -> WindlassApi:
        return WindlassApi(app, options)

    return loop.run(make())


@pytest.fixture
def served(api: WindlassApi, loop: LoopThread) -> Iterator[Served]:
    served = Served(api, loop)
    yield served
    served.stop()


@pytest.fixture
def polls(api: WindlassApi, loop: LoopThread) -> LongPolls:
    async def find() -> LongPolls:
        return api.gateway.part(ClaimService).polls

    return loop.run(find())


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{served.port}", timeout=30) as http:
        yield http


def begin(http: httpx.Client) -> dict[str, Any]:
    """The body of the first claim of a new session."""
    session = http.post("/v1/sessions", json={"name": "js", "tasks": TASKS}).json()["session"]
    return {"session": session, "nonce": 1, "wait_s": 20}


def test_a_closed_connection_ends_its_poll(
    app: Windlass, http: httpx.Client, served: Served, polls: LongPolls
) -> None:
    body = httpx.Request("POST", "http://localhost/v1/claims", json=begin(http)).content
    head = (
        b"POST /v1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    with served.connect() as connection:
        connection.sendall(head + body)
        await_polls(polls, 1)
    until(lambda: polls.number == 0, "the end of the poll")
    job = app.tasks["add"].enqueue(1)
    (claimed,) = http.post("/v1/claims", json=begin(http)).json()["claims"]
    assert (claimed["id"], claimed["attempt"]) == (job.id, 1)


def test_a_stopping_server_answers_its_polls(
    app: Windlass, http: httpx.Client, served: Served, polls: LongPolls, loop: LoopThread
) -> None:
    first = begin(http)
    with ThreadPoolExecutor(1) as thread:
        poll = thread.submit(http.post, "/v1/claims", json=first)
        await_polls(polls, 1)
        loop.loop.call_soon_threadsafe(served.server.handle_exit, signal.SIGTERM, None)
        answer = poll.result(10)
    assert (answer.status_code, answer.json()["claims"]) == (200, [])
    job = app.tasks["add"].enqueue(1)
    served.stop()
    assert job.info().state is State.READY
