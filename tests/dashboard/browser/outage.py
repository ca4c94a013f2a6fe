"""An engine that does not answer, as the dashboard shows it.

`freeze` stops the server of the engine for some seconds while a page is open. It measures when the
banner appears, how many requests are in flight at once, and when the page is back by itself.
"""

from __future__ import annotations

import time
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec
from playwright.sync_api import Request, expect

from tests.dashboard.browser.visit import Visit

#: How soon a page tells about an outage, in seconds.
BANNER_S: Final = 3.0


class FrozenServer(Protocol):
    """A server that can be stopped for a while."""

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def end(self) -> None: ...


class Outage(msgspec.Struct, frozen=True):
    """What a visitor saw of an outage."""

    frozen_s: float
    banner_s: float  # from the freeze until the banner
    most_in_flight: int  # requests at once, without the stream of events
    requests: int  # during the outage
    back_s: float  # from the thaw until the banner is gone


class InFlight:
    """Counts the requests that have no answer yet. The stream of events does not count."""

    def __init__(self, visit: Visit) -> None:
        self._open: set[Request] = set()
        self.most = 0
        self.total = 0
        page = visit.page
        page.on("request", self._on_request)
        page.on("requestfinished", self._on_end)
        page.on("requestfailed", self._on_end)

    def _on_request(self, request: Request) -> None:
        if urlsplit(request.url).path.endswith("/v1/events"):
            return
        self._open.add(request)
        self.total += 1
        self.most = max(self.most, len(self._open))

    def _on_end(self, request: Request) -> None:
        self._open.discard(request)


def freeze(visit: Visit, server: FrozenServer, seconds: float) -> Outage:
    """Freeze the engine of an open page. The banner comes and goes; the numbers stay."""
    visit.watch.expects("status of 503")
    banner = visit.page.locator("#banner")
    expect(banner).to_be_empty()
    requests = InFlight(visit)
    server.freeze()
    frozen = time.monotonic()
    try:
        expect(banner).to_contain_text("does not answer")
        banner_s = time.monotonic() - frozen
        visit.page.wait_for_timeout((seconds - banner_s) * 1000)
        expect(banner).to_contain_text("does not answer")
        expect(visit.page.locator("main h1")).to_be_visible()
    finally:
        server.thaw()
    thawed = time.monotonic()
    during = requests.total
    expect(banner).to_be_empty(timeout=60_000)
    back_s = time.monotonic() - thawed
    return Outage(thawed - frozen, banner_s, requests.most, during, back_s)
