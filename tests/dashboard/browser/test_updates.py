"""Live updates do not disturb the reader: ten of them a second, while a dialog is open."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.dashboard.browser.site import Site, Stock
from tests.dashboard.browser.visit import Visit

#: Lets each event of the stream arrive ten times a second from now on, with other counts.
_TEN_A_SECOND = """async () => {
  const {LiveStats} = await import("./static/stream.js");
  const take = LiveStats.prototype.take;
  window.updates = 0;
  LiveStats.prototype.take = function (name, data) {
    clearInterval(this.often);
    if (name !== "stats") return take.call(this, name, data);
    this.often = setInterval(() => {
      window.updates += 1;
      for (const queue of Object.values(data.queues)) queue.jobs.ready = 1000 + window.updates;
      take.call(this, name, data);
    }, 100);
  };
}"""


@pytest.mark.slow
def test_ten_updates_a_second_do_not_swallow_a_dialog(
    visit: Visit, site: Site, stock: Stock
) -> None:
    site.shop.letter.using(queue="busy").enqueue("x")
    visit.open("queues", "Queues")
    visit.run(_TEN_A_SECOND)
    visit.page.wait_for_function("() => window.updates > 5")
    visit.click("Purge busy")
    field = visit.dialog.get_by_role("textbox")
    expect(field).to_be_focused()
    before = visit.run("window.updates")
    behind = visit.row("busy").locator("td").nth(1)
    shown = behind.inner_text()
    field.press_sequentially("busy", delay=500)
    expect(field).to_have_value("busy")
    expect(field).to_be_focused()
    assert visit.run("window.updates") - before >= 10
    assert behind.inner_text() != shown  # the page went on
    visit.page.get_by_text("The same from a shell").click()
    visit.page.wait_for_timeout(500)
    expect(visit.dialog).to_contain_text("windlass queue purge busy")
    visit.confirm("Purge")
    expect(visit.page.locator("#notice")).to_contain_text("purge of busy has started")


@pytest.mark.slow
def test_ten_updates_a_second_keep_the_focus_and_the_typed_filter(
    visit: Visit, stock: Stock
) -> None:
    visit.open("jobs", "Jobs")
    visit.run(_TEN_A_SECOND)
    visit.page.wait_for_function("() => window.updates > 5")
    field = visit.page.get_by_label("Task", exact=True)
    field.press_sequentially("shop.sh", delay=300)
    expect(field).to_have_value("shop.sh")
    expect(field).to_be_focused()
    row = visit.page.locator("tbody a").first
    row.focus()
    visit.page.wait_for_timeout(1000)
    expect(row).to_be_focused()
