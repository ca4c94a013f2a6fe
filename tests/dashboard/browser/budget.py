"""What the first page costs: bytes on the wire, and the time to its first paint."""

from __future__ import annotations

from statistics import median
from typing import Any, Final

import msgspec
from playwright.sync_api import Browser, StorageState

from tests.dashboard.browser.visit import Visit, visiting

#: The most bytes that the first page transfers, with its headers and its first data.
MOST_BYTES: Final = 120_000
#: The longest time to the first paint, in milliseconds.
MOST_PAINT_MS: Final = 300.0

_PAINTS: Final = """() => Object.fromEntries(
  performance.getEntriesByType("paint").map((one) => [one.name, one.startTime]))"""


class FirstPage(msgspec.Struct, frozen=True):
    """One load of the first page with an empty cache."""

    transferred: int
    paint_ms: float
    content_ms: float  # to the first text


def measure(browser: Browser, url: str, login: StorageState, times: int) -> list[FirstPage]:
    """Load the first page some times, each in a new context."""
    return [_load(browser, url, login) for _ in range(times)]


def median_paint_ms(pages: list[FirstPage]) -> float:
    return median(page.paint_ms for page in pages)


def _load(browser: Browser, url: str, login: StorageState) -> FirstPage:
    with visiting(browser, url, login=login) as visit:
        sizes: list[float] = []
        debugger = visit.page.context.new_cdp_session(visit.page)
        debugger.on("Network.loadingFinished", lambda event: sizes.append(_size(event)))
        debugger.send("Network.enable")
        visit.open("", "Overview")
        paints = _paints(visit)
        return FirstPage(int(sum(sizes)), paints["first-paint"], paints["first-contentful-paint"])


def _size(event: dict[str, Any]) -> float:
    return float(event["encodedDataLength"])


def _paints(visit: Visit) -> dict[str, float]:
    visit.page.wait_for_function(
        "() => performance.getEntriesByName('first-contentful-paint').length > 0"
    )
    found: dict[str, float] = visit.run(_PAINTS)
    return found
