"""The number of sessions of one caller is limited."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Timer
from typing import Any, cast

import pytest

from tests.http.client import Client
from tests.http.conftest import Caller
from tests.http.worker_protocol.conftest import ENGINES, Instance
from tests.http.worker_protocol.remote import Remote, problem_of
from tests.worker.faulty import Faulty
from tests.worker.yard import until
from windlass import Windlass
from windlass.engine.contract import Engine
from windlass.http import ApiOptions
from windlass.http.worker_protocol import session_limit

WANTED = {"name": "js", "tasks": ["add"]}


@pytest.fixture
def options() -> ApiOptions:
    return ApiOptions(max_sessions=2)


@pytest.mark.parametrize("engine_name", ENGINES)
def test_more_sessions_are_refused(client: Client) -> None:
    for _ in range(2):
        Remote.begin(client)
    answer = client.post("/v1/sessions", WANTED)
    assert problem_of(answer) == (429, "too-many-requests")
    assert "anonymous has 2 sessions" in answer.json()["detail"]
    assert "30 s after its last heartbeat" in answer.json()["detail"]
    assert answer.headers["retry-after"] == "5"


def test_a_session_that_was_ended_makes_room(client: Client) -> None:
    remotes = [Remote.begin(client) for _ in range(2)]
    remotes[0].end()
    Remote.begin(client)
    assert client.post("/v1/sessions", WANTED).status_code == 429


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_session_that_has_expired_makes_room(
    app: Windlass, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has noticed its end: there is no other session that could claim its jobs."""
    monkeypatch.setattr(session_limit, "FULL_COUNT_S", 0.0)
    for _ in range(2):
        Remote.begin(client)
    assert client.post("/v1/sessions", WANTED).status_code == 429
    app.engine.clock_offset_ms += 31_000
    Remote.begin(client)


def test_a_count_that_takes_long_does_not_block_the_instance(
    app: Windlass, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_limit, "COUNT_S", 0.0)
    remote, gate, counts = Remote.begin(client), Event(), Event()
    faulty = Faulty(app.engine)

    def count_slowly(real: Callable[[], Any], _arguments: object) -> Any:
        counts.set()
        assert gate.wait(20)
        return real()

    faulty.faults["sessions"] = count_slowly
    rescue = Timer(3, gate.set)
    rescue.start()
    with app.replace_engine(cast(Engine, faulty)):
        begun = client.start("POST", "/v1/sessions", json=WANTED)
        until(counts.is_set, "the count")
        ended = client.start("DELETE", f"/v1/sessions/{remote.session}")
        until(lambda: "close" in faulty.calls, "the end of the session in the engine")
        for _ in range(20):
            assert client.get("/healthz").status_code == 200
        assert not gate.is_set(), "the instance answers while sessions are counted"
        gate.set()
        assert (client.finish(begun).status_code, client.finish(ended).status_code) == (201, 204)
    rescue.cancel()


def test_each_caller_has_its_own_limit(caller: Caller) -> None:
    first, second = caller("worker"), caller("worker")
    for client in (first, first, second):
        Remote.begin(client)
    assert first.post("/v1/sessions", WANTED).status_code == 429
    Remote.begin(second)


def test_sessions_of_other_instances_count(
    client: Client, instance: Instance, options: ApiOptions
) -> None:
    other = instance(options)
    for _ in range(2):
        Remote.begin(client)
    assert other.post("/v1/sessions", WANTED).status_code == 429
