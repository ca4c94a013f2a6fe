"""Lists of jobs: bulk actions, rows that stay in place, pages back and forth; an ended login."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.browser.site import Site, Stock
from tests.dashboard.browser.visit import Visit, log_in, visiting
from tests.worker.yard import until
from windlass import State
from windlass.access_tokens import Role


def test_cancel_selected_jobs_and_then_all_that_match(visit: Visit, site: Site) -> None:
    later = site.shop.letter.using(queue="bulk", run_after="1h")
    jobs = later.enqueue_many([(str(number),) for number in range(60)])
    visit.open("jobs?queue=bulk&state=scheduled", "Jobs")
    expect(visit.page.get_by_label("State").get_by_text("60")).to_be_visible()
    boxes = visit.page.locator("tbody input[type=checkbox]")
    boxes.nth(0).check()
    boxes.nth(1).check()
    visit.click("Cancel 2 selected jobs")
    expect(visit.dialog).to_contain_text("windlass job cancel")
    visit.confirm("Cancel jobs")
    expect(visit.page.locator("#notice")).to_contain_text("2 of 2 jobs are cancelled")
    visit.page.get_by_role("button", name="Clear the selection").click()
    visit.page.get_by_role("button", name="Cancel all that match").click()
    expect(visit.dialog).to_contain_text("58 jobs match now")
    visit.dialog.get_by_label("Type cancel to confirm").fill("cancel")
    visit.confirm("Cancel jobs")
    until(lambda: {job.info().state for job in jobs} == {State.CANCELLED}, "the cancellations")


@pytest.mark.slow
def test_rows_stay_under_the_pointer_and_new_ones_are_announced(visit: Visit, site: Site) -> None:
    later = site.shop.letter.using(queue="steady", run_after="1h")
    later.enqueue("first")
    visit.open("jobs?queue=steady", "Jobs")
    visit.row("shop.letter").hover()
    site.shop.letter.using(queue="steady", run_after="30m").enqueue("earlier")
    new = visit.page.get_by_role("button", name="Show 1 new row")
    expect(new).to_be_visible()
    expect(visit.row("shop.letter")).to_have_count(1)
    new.click()
    expect(visit.row("shop.letter")).to_have_count(2)


def test_pages_lead_back(visit: Visit, stock: Stock) -> None:
    visit.open("jobs?queue=letters", "Jobs")
    visit.page.keyboard.press("]")
    expect(visit.page.get_by_role("link", name="Previous page")).to_be_visible()
    visit.page.reload()
    visit.page.get_by_role("link", name="Previous page").click()
    expect(visit.page.get_by_role("link", name="First page")).to_have_count(0)


@pytest.mark.slow
def test_an_ended_login_is_told_and_leads_back_to_the_view(chromium: Browser, site: Site) -> None:
    token, text = site.app.access_tokens.create(name="leaving", role=Role.OPERATOR)
    login = log_in(chromium, site.url, text)
    with visiting(chromium, site.url, login=login) as visit:
        visit.watch.expects("status of 401")
        visit.open("queues", "Queues")
        site.app.access_tokens.revoke(token.id)
        expect(visit.page.locator("#banner")).to_contain_text("Your login has ended")
        visit.page.get_by_role("button", name="Log in again").click()
        visit.page.get_by_label("Access token").fill(site.tokens[Role.VIEWER])
        visit.page.get_by_role("button", name="Log in").click()
        visit.await_title("Queues")
