"""Accessibility: axe-core finds nothing on any page, in light and in dark."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.dashboard.browser.axe import violations
from tests.dashboard.browser.conftest import Visiting
from tests.dashboard.browser.site import Site, Stock, views
from tests.dashboard.browser.visit import Visit


def test_every_view_is_accessible(visit: Visit, stock: Stock) -> None:
    found = []
    for address, title in {**views(stock), "nowhere": ""}.items():
        visit.open(address, title) if title else visit.page.goto(f"{visit.url}/#/{address}")
        found += [f"{address}: {one}" for one in violations(visit)]
    assert not found, "\n".join(found)


def test_dialogs_are_accessible(visit: Visit, stock: Stock) -> None:
    visit.open("queues", "Queues")
    visit.click("Purge letters")
    visit.page.get_by_text("The same from a shell").click()
    found = violations(visit)
    visit.click("Close", visit.dialog)
    visit.page.keyboard.press("?")
    expect(visit.dialog).to_contain_text("Go to Queues")
    assert not [*found, *violations(visit)]


def test_pages_without_javascript_are_accessible(
    visitor: Visiting, site: Site, stock: Stock
) -> None:
    with visitor() as visit:
        found = []
        for path in ("login", "status?refresh=off"):
            visit.page.goto(f"{site.url}/{path}")
            found += violations(visit)
    assert not found
