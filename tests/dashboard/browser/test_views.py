"""What an operator reads in the dashboard: live counters, filters, and links that show the same."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, expect

from tests.dashboard.browser.conftest import Visiting
from tests.dashboard.browser.site import Site, Stock
from tests.dashboard.browser.visit import PHONE, Visit


def tile(visit: Visit, name: str) -> Locator:
    """The number of a tile of the overview."""
    tiles = visit.page.locator(".tile").filter(has=visit.page.get_by_text(name, exact=True))
    return tiles.locator(".value")


def rows(visit: Visit) -> list[str]:
    """The ids of the listed jobs, read at one instant: the list may change."""
    links = visit.page.locator("tbody tr a[href^='#/jobs/']")
    found: list[str] = links.evaluate_all("(links) => links.map((link) => link.title)")
    return found


def test_counters_move_while_the_page_is_open(visit: Visit, site: Site, stock: Stock) -> None:
    visit.open("", "Overview")
    ready = tile(visit, "Ready")
    before = int(ready.inner_text())
    visit.run("window.isSamePage = true")
    site.shop.letter.enqueue_many((f"new {number}",) for number in range(7))
    expect(ready).to_have_text(str(before + 7))
    assert visit.run("window.isSamePage")


def test_a_filter_is_in_the_address_and_survives_a_reload(visit: Visit, stock: Stock) -> None:
    visit.open("jobs", "Jobs")
    visit.page.get_by_label("State").get_by_role("link", name="dead").click()
    expect(visit.page).to_have_url(re.compile("state=dead"))
    visit.page.get_by_label("Task", exact=True).fill("shop.charge")
    visit.page.get_by_label("Task", exact=True).press("Enter")
    expect(visit.page).to_have_url(re.compile("task=shop.charge"))
    expect(visit.page.locator("tbody tr")).to_have_count(len(stock.charged))
    listed = rows(visit)
    assert set(listed) == {job.id for job in stock.charged}
    visit.page.reload()
    expect(visit.row("shop.charge")).to_have_count(len(listed))
    assert rows(visit) == listed
    chosen = visit.page.get_by_label("State").locator("[aria-current]")
    expect(chosen).to_contain_text("dead")
    visit.page.go_back()
    expect(visit.row("shop.ship")).to_have_count(len(stock.shipped))


def test_the_pages_of_a_list_have_addresses(visit: Visit, stock: Stock) -> None:
    visit.open("jobs?queue=letters", "Jobs")
    expect(visit.row("shop.letter")).to_have_count(50)
    first = rows(visit)
    visit.page.get_by_role("link", name="Next page").click()
    expect(visit.page.get_by_role("link", name="First page")).to_be_visible()
    second = rows(visit)
    assert second
    assert not set(first) & set(second)
    visit.page.reload()
    expect(visit.page.get_by_role("link", name="First page")).to_be_visible()
    assert rows(visit)[: len(second)] == second


def test_a_job_opens_from_the_list_and_from_the_search(visit: Visit, stock: Stock) -> None:
    job = stock.shipped[0]
    visit.open("jobs?task=shop.ship", "Jobs")
    visit.page.get_by_title(job.id).click()
    visit.await_title("shop.ship dead")
    main = visit.page.locator("main")
    expect(main).to_contain_text("ConnectionError: the carrier refused order 1")
    expect(main.locator(".timeline li")).to_have_count(6)  # enqueued, four attempts, dead
    visit.page.keyboard.press("/")
    visit.page.keyboard.type(stock.charged[2].id)
    visit.page.keyboard.press("Enter")
    visit.await_title("shop.charge dead")
    expect(main.get_by_text("r-3")).to_be_visible()  # its header


def test_the_audit_trail_links_to_operations(visit: Visit, stock: Stock) -> None:
    visit.open("audit", "Audit")
    visit.page.get_by_title(stock.operation).locator("visible=true").first.click()
    visit.await_title("Operations")


def test_lists_fit_on_a_phone(visitor: Visiting, stock: Stock) -> None:
    lists = {"queues": "Queues", "jobs": "Jobs", "schedules": "Schedules", "audit": "Audit trail"}
    with visitor(size=PHONE) as visit:
        for address, title in lists.items():
            visit.open(address, title)
            expect(visit.page.locator("#top [aria-current]")).to_be_in_viewport(ratio=0.9)
            hidden_px = "(table) => table.scrollWidth - table.clientWidth"
            assert visit.page.locator(".table").evaluate(hidden_px) == 0, address


def test_an_unknown_job_leads_back_to_the_list(visitor: Visiting, stock: Stock) -> None:
    with visitor() as visit:
        visit.watch.expects("404")
        visit.page.goto(f"{visit.url}/#/jobs/unknown")
        expect(visit.page.locator("main")).to_contain_text("There is no job unknown")
        visit.page.get_by_role("link", name="Go back to the list").click()
        visit.await_title("Jobs")


def test_a_running_job_shows_its_progress_and_log(visit: Visit, stock: Stock) -> None:
    visit.open(f"jobs/{stock.running.id}", "shop.export running")
    main = visit.page.locator("main")
    expect(main).to_contain_text("1000000 rows")
    expect(main.get_by_label("Log lines")).to_contain_text("opened the file")


def test_old_numbers_have_a_banner_until_the_server_is_back(
    visitor: Visiting, stock: Stock
) -> None:
    with visitor() as visit:
        visit.watch.expects("ERR_INTERNET_DISCONNECTED")
        visit.open("queues", "Queues")
        visit.page.context.set_offline(True)
        visit.page.keyboard.press("r")
        banner = visit.page.locator("#banner")
        expect(banner).to_contain_text("does not answer")
        expect(visit.row("letters")).to_be_visible()
        visit.page.context.set_offline(False)
        expect(banner).to_be_empty()
