"""What an operator does in the dashboard, and what a viewer cannot do."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, expect

from tests.dashboard.browser.site import Site, Stock, views
from tests.dashboard.browser.visit import Visit, log_in, visiting
from tests.worker.yard import until
from windlass import State
from windlass.access_tokens import Role

#: More than a number of JavaScript can hold.
LARGE = 2**63
#: Buttons that change nothing.
READS = re.compile("Show the result|Filter|Copy|Clear")


def test_pause_and_resume_a_queue(visit: Visit, site: Site, stock: Stock) -> None:
    visit.open("queues", "Queues")
    visit.click("Pause letters")
    visit.page.get_by_text("The same from a shell").click()
    expect(visit.dialog).to_contain_text("windlass queue pause letters")
    expect(visit.dialog).to_contain_text(f"{site.url}/v1/queues/letters/pause")
    visit.confirm("Pause")
    expect(visit.row("letters").locator(".badge")).to_have_text("paused")
    assert site.app.queue("letters").info().paused
    visit.click("Resume letters")
    visit.confirm("Resume")
    expect(visit.row("letters").locator(".badge")).to_have_count(0)
    assert not site.app.queue("letters").info().paused


def test_resume_the_queue_of_a_job_that_waits(visit: Visit, site: Site, stock: Stock) -> None:
    job = site.shop.letter.using(queue="held").enqueue("x")
    site.app.queue("held").pause()
    visit.open(f"jobs/{job.id}", "shop.letter ready")
    main = visit.page.locator("main")
    expect(main).to_contain_text("windlass queue resume held")
    visit.click("Resume the queue held")
    visit.confirm("Resume")
    expect(main).not_to_contain_text("windlass queue resume held")
    assert not site.app.queue("held").info().paused


def test_purge_needs_the_name_of_the_queue(visit: Visit, site: Site, stock: Stock) -> None:
    jobs = site.shop.letter.using(queue="doomed").enqueue_many([("a",), ("b",)])
    visit.open("queues", "Queues")
    visit.click("Purge doomed")
    purge = visit.dialog.get_by_role("button", name="Purge")
    field = visit.dialog.get_by_role("textbox")
    field.fill("doome")
    expect(purge).to_be_disabled()
    field.press("Enter")
    assert jobs[0].info().state is State.READY
    field.fill("doomed")
    visit.confirm("Purge")
    expect(visit.page.locator("#notice")).to_contain_text("purge of doomed has started")
    until(lambda: not list(site.app.jobs.list(queue="doomed")), "the end of the purge")


def test_cancel_a_running_job(visit: Visit, site: Site) -> None:
    job = site.shop.export.enqueue(5)
    site.await_state(job, State.RUNNING)
    visit.open(f"jobs/{job.id}", "shop.export running")
    visit.click("Cancel the job")
    visit.confirm("Cancel the job")
    visit.await_title("shop.export cancelled")
    site.await_state(job, State.CANCELLED)


def test_run_a_schedule_now(visit: Visit, site: Site, stock: Stock) -> None:
    visit.open("schedules", "Schedules")
    visit.click("Run now shop.tidy")
    visit.confirm("Run now")
    visit.page.locator("#notice").get_by_role("link").click()
    visit.await_title("shop.tidy")
    assert [job.task for job in site.app.jobs.list(task="shop.tidy")]


def test_edit_and_retry_keeps_large_numbers(visit: Visit, site: Site) -> None:
    job = site.shop.total.enqueue(LARGE, -LARGE - 1, share=1e300)
    site.await_state(job, State.DEAD)
    visit.open(f"jobs/{job.id}", "shop.total dead")
    visit.click("Edit and retry the job")
    numbers, names = visit.dialog.get_by_role("textbox").all()
    assert str(LARGE) in numbers.input_value()
    numbers.fill(numbers.input_value().replace(str(LARGE), f"{LARGE}, {LARGE + 1}"))
    names.fill(names.input_value().replace("{", '{"note": "checked", '))
    visit.confirm("Save and retry")
    assert job.result(timeout=20) == LARGE + LARGE + 1 - LARGE - 1
    visit.await_title("shop.total succeeded")
    code = visit.page.get_by_role("region", name="Positional arguments")
    expect(code).to_have_text(f"[\n  {LARGE},\n  {LARGE + 1},\n  {-LARGE - 1}\n]")


def test_an_error_of_an_edit_keeps_what_was_typed(visit: Visit, site: Site) -> None:
    job = site.shop.total.enqueue(1, -1)
    site.await_state(job, State.DEAD)
    visit.watch.expects("status of 422")
    visit.open(f"jobs/{job.id}", "shop.total dead")
    visit.click("Edit and retry the job")
    numbers = visit.dialog.get_by_role("textbox").first
    numbers.fill('["no number", 3]')
    visit.click("Save and retry", visit.dialog)
    expect(visit.dialog.get_by_role("alert")).to_contain_text("amounts")
    expect(numbers).to_have_value('["no number", 3]')
    assert job.info().state is State.DEAD


def test_a_viewer_reads_everything_and_has_no_action(
    chromium: Browser, site: Site, stock: Stock
) -> None:
    login = log_in(chromium, site.url, site.tokens[Role.VIEWER])
    with visiting(chromium, site.url, login=login) as visit:
        for address, title in views(stock).items():
            visit.open(address, title)
            buttons = visit.page.locator("main button:visible:not([aria-disabled])")
            expect(buttons.filter(has_not_text=READS)).to_have_count(0)
        visit.open("queues", "Queues")
        visit.page.get_by_role("button", name="Pause letters").press("Enter")
        expect(visit.page.locator("#notice")).to_contain_text("the role viewer")
        expect(visit.dialog).to_have_count(0)
        visit.watch.expects("status of 403")
        refused = visit.run(
            "async (path) => (await fetch(path, {method: 'POST'})).status",
            f"{site.url}/v1/queues/letters/pause",
        )
        assert refused == 403
        assert not site.app.queue("letters").info().paused
