"""An engine that does not answer: a banner, one request at a time, and back by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.browser.outage import BANNER_S, freeze
from tests.dashboard.browser.site import Site
from tests.dashboard.browser.visit import log_in, visiting
from tests.redis_server import RedisServer, private_server
from windlass.access_tokens import Role


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = private_server()
    yield server
    server.end()


@pytest.mark.slow
@pytest.mark.parametrize("view", ["", "queues", "jobs"])
def test_a_frozen_engine(chromium: Browser, server: RedisServer, tmp_path: Path, view: str) -> None:
    with Site(tmp_path, server.url()) as site:
        site.shop.letter.enqueue_many([("a",), ("b",)])
        login = log_in(chromium, site.url, site.tokens[Role.ADMIN])
        with visiting(chromium, site.url, login=login) as visit:
            visit.open(view, view.title() or "Overview")
            visit.await_live()
            outage = freeze(visit, server, 10)
            assert outage.banner_s < BANNER_S, outage
            assert outage.most_in_flight <= 1, outage
            site.shop.letter.using(queue="after").enqueue("c")
            visit.open("queues", "Queues")
            expect(visit.row("after")).to_be_visible()
