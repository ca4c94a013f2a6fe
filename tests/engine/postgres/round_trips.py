"""Counts the round trips of calls of an engine, behind a proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.engine.postgres.databases import Database
from tests.proxy import Proxy
from windlass.engine.postgres.engine import PostgresEngine

Call = Callable[[PostgresEngine], object]


class TripCounter:
    """Runs calls of one engine, which wakes no others: that would take round trips too."""

    def __init__(
        self, engine: PostgresEngine, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.engine = engine
        self._proxy = proxy
        monkeypatch.setattr(engine._wakeup, "wake", lambda *_: None)
        monkeypatch.setattr(engine._result_wakeup, "publish", lambda *_: None)
        engine.stats()  # connects

    def of(self, call: Call) -> int:
        before = self._proxy.round_trips
        call(self.engine)
        return self._proxy.round_trips - before


@contextmanager
def counted(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[TripCounter]:
    with Proxy(database.server.port) as proxy:
        url = database.server.url(database.name, port=proxy.port)
        yield TripCounter(database.open_url(url), proxy, monkeypatch)
