"""The stream of counts."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.http.client import Client, LoopThread
from tests.http.conftest import Caller
from windlass import Windlass
from windlass.errors import EngineUnavailable
from windlass.http import WindlassApi
from windlass.http.resources import events

PATH = "/v1/events"


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PERIOD_S", 0.05)


class CountedEngine:
    """An engine that counts, delays or refuses the calls of `stats`."""

    def __init__(self, app: Windlass) -> None:
        self._engine = app.engine
        self.calls = 0
        self.error: Exception | None = None
        self.is_open = threading.Event()
        self.is_open.set()
        app.wrap_engine(lambda _: self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def stats(self) -> Any:
        self.calls += 1
        self.is_open.wait(20)
        if self.error is not None:
            raise self.error
        return self._engine.stats()


def test_counts_are_streamed(client: Client, app: Windlass) -> None:
    with client.stream(PATH) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.headers["cache-control"] == "no-store"
        assert "content-length" not in stream.headers
        name, data = stream.next()
        assert (name, data["jobs"]) == ("stats", {})
        app.tasks["shop.mail.send"].enqueue("ann")
        while not data["jobs"]:
            name, data = stream.next()
        assert data["queues"]["mail"]["jobs"] == {"ready": 1}


def test_all_streams_share_one_snapshot(client: Client, app: Windlass) -> None:
    engine = CountedEngine(app)
    with client.stream(PATH) as first, client.stream(PATH) as second, client.stream(PATH) as third:
        before = engine.calls
        for _ in range(10):
            for stream in (first, second, third):
                stream.next()
        assert engine.calls - before <= 12
    last = engine.calls
    time.sleep(0.2)
    assert engine.calls <= last + 1, "no stream is open, and snapshots are still read"


def test_a_scoped_caller_sees_its_queues(caller: Caller, app: Windlass) -> None:
    app.tasks["shop.mail.send"].enqueue("ann")
    app.tasks["shop.report"].enqueue()
    with caller("operator", "mail").stream(PATH) as stream:
        _, data = stream.next()
        assert set(data["queues"]) == {"mail"}
        assert (data["jobs"], data["totals"]) == ({"ready": 1}, None)
    with caller("operator").stream(PATH) as stream:
        assert set(stream.next()[1]["queues"]) == {"mail", "default"}


def test_a_stream_ends_when_the_instance_shuts_down(
    client: Client, api: WindlassApi, loop: LoopThread
) -> None:
    with client.stream(PATH) as stream:
        stream.next()
        loop.loop.call_soon_threadsafe(api.drain)
        stream.read_to_end()
    assert client.get(PATH).status_code == 503


def test_a_stream_ends_with_its_token(caller: Caller, app: Windlass) -> None:
    with caller("operator").stream(PATH) as stream:
        stream.next()
        app.access_tokens.revoke("operator")
        stream.read_to_end()


def test_an_open_stream_ends_when_tokens_are_required(client: Client, caller: Caller) -> None:
    with client.stream(PATH) as stream:
        stream.next()
        caller("operator")
        stream.read_to_end()


def test_an_engine_that_fails_is_told(client: Client, app: Windlass) -> None:
    engine = CountedEngine(app)
    with client.stream(PATH) as stream:
        assert stream.next()[0] == "stats"
        engine.error = EngineUnavailable("no answer")
        name, data = stream.next()
        while name == "stats":
            name, data = stream.next()
        assert (name, data["type"]) == ("problem", "urn:windlass:problem:engine-away")
        engine.error = None
        while name == "problem":
            name, data = stream.next()


def test_a_frozen_engine_is_told_once_and_gets_one_call(
    client: Client, app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LATE_S", 0.1)
    monkeypatch.setattr(events, "COMMENT_S", 0.1)
    engine = CountedEngine(app)
    with client.stream(PATH) as stream:
        stream.next()
        engine.is_open.clear()
        while stream.next()[0] != "problem":
            pass
        calls = engine.calls
        assert stream.next() == (":", "keep-alive")
        assert stream.next() == (":", "keep-alive")
        assert engine.calls == calls
        engine.is_open.set()
        while stream.next()[0] != "stats":
            pass


def test_streams_are_limited(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_STREAMS", 1)
    with client.stream(PATH) as stream:
        stream.next()
        refused = client.get(PATH)
        assert refused.status_code == 503
        assert refused.json()["type"].endswith(":overloaded")
    with client.stream(PATH) as stream:
        assert stream.next()[0] == "stats"


@pytest.mark.parametrize("role", ["producer", "worker"])
def test_streams_are_for_operators(caller: Caller, role: str) -> None:
    assert caller(role).get(PATH).status_code == 403
