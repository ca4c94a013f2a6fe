"""The dashboard on a phone, and by the keyboard alone."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.dashboard.browser.axe import violations
from tests.dashboard.browser.conftest import Visiting
from tests.dashboard.browser.site import Site, Stock, views
from tests.dashboard.browser.visit import PHONE, Visit

_WIDTHS = "() => [document.documentElement.scrollWidth, innerWidth]"
#: The right edges of the current item of the menu, and of the buttons of lists.
_EDGES = """() => [...document.querySelectorAll("#top [aria-current], td.actions button")]
  .map((one) => Math.round(one.getBoundingClientRect().right))"""


@pytest.mark.slow
def test_no_page_scrolls_sideways_on_a_phone(visitor: Visiting, site: Site, stock: Stock) -> None:
    wide = []
    with visitor(size=PHONE) as visit:
        for address, title in views(stock).items():
            visit.open(address, title)
            needed, given = visit.run(_WIDTHS)
            if needed > given:
                wide.append(f"{address}: {needed} px")
            wide += [f"{address}: {one}" for one in violations(visit)]
        for path in ("login", "status?refresh=off"):
            visit.page.goto(f"{site.url}/{path}")
            needed, given = visit.run(_WIDTHS)
            if needed > given:
                wide.append(f"{path}: {needed} px")
    assert not wide, "\n".join(wide)


@pytest.mark.slow
def test_the_current_view_and_actions_of_lists_fit_on_a_phone(
    visitor: Visiting, stock: Stock
) -> None:
    with visitor(size=PHONE) as visit:
        for address, title in {
            "queues": "Queues",
            "schedules": "Schedules",
            "audit": "Audit",
        }.items():
            visit.open(address, title)
            visit.await_live()
            edges = visit.run(_EDGES)
            assert edges, address
            assert max(edges) <= PHONE[0], f"{address}: {edges}"


@pytest.mark.slow
def test_dialogs_fit_on_a_phone(visitor: Visiting, stock: Stock) -> None:
    with visitor(size=PHONE) as visit:
        visit.open("queues", "Queues")
        visit.click("Purge letters")
        visit.page.get_by_text("The same from a shell").click()
        box = visit.dialog.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE[0]


@pytest.mark.slow
def test_the_keyboard_is_enough(visit: Visit, site: Site, stock: Stock) -> None:
    site.shop.letter.using(queue="by-keys").enqueue("x")
    keys = visit.page.keyboard
    visit.open("", "Overview")
    keys.press("Tab")
    expect(visit.page.locator("#skip")).to_be_focused()
    keys.press("Enter")
    expect(visit.page.locator("main")).to_be_focused()
    keys.press("?")
    expect(visit.dialog).to_contain_text("Go to Queues")
    keys.press("Escape")
    for key in ("g", "q"):
        keys.press(key)
    visit.await_title("Queues")
    pause = visit.page.get_by_role("button", name="Pause by-keys")
    expect(pause).to_be_visible()
    for _ in range(40):
        keys.press("Tab")
        if pause.evaluate("(one) => one === document.activeElement"):
            break
    expect(pause).to_be_focused()
    keys.press("Enter")
    expect(visit.dialog.get_by_role("button", name="Pause", exact=True)).to_be_focused()
    keys.press("Enter")
    expect(visit.dialog).to_have_count(0)
    expect(visit.row("by-keys").locator(".badge")).to_have_text("paused")
    assert site.app.queue("by-keys").info().paused


@pytest.mark.slow
def test_rows_by_the_keyboard(visit: Visit, stock: Stock) -> None:
    keys = visit.page.keyboard
    visit.open("jobs?task=shop.ship", "Jobs")
    expect(visit.row("shop.ship")).to_have_count(len(stock.shipped))
    keys.press("j")
    expect(visit.page.locator("tbody a").first).to_be_focused()
    keys.press("j")
    keys.press("k")
    keys.press("Enter")
    visit.await_title("shop.ship dead")
    keys.press("/")
    expect(visit.page.get_by_role("searchbox")).to_be_focused()
    keys.type("shop.charge")
    keys.press("Enter")
    expect(visit.row("shop.charge").first).to_be_visible()
