"""Actions on much: a dead group at a rate, and arguments of 1 MiB."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.dashboard.browser.site import DEADLINE_S, Site
from tests.dashboard.browser.visit import Visit
from tests.worker.yard import until
from windlass import State

MIB = 1024 * 1024


@pytest.mark.slow
def test_retry_a_dead_group_at_a_rate(visit: Visit, site: Site) -> None:
    site.app.dead.discard(task="shop.total")  # of other tests, on the same site
    jobs = [site.shop.total.enqueue(number) for number in range(8)]
    for job in jobs:
        site.await_state(job, State.DEAD)
    visit.open("dead?task=shop.total", "Dead jobs of shop.total")
    group = visit.row("the report has no note")
    group.get_by_role("button", name="Retry").click()
    expect(visit.dialog).to_contain_text("8 dead jobs match now")
    visit.dialog.get_by_role("textbox").first.fill("4")
    visit.confirm("Retry")
    visit.page.locator("#notice").get_by_role("link").click()
    visit.await_title("Operations")
    path = "/v1/operations"
    [operation] = [one for one in site.call("GET", path)["operations"] if one["rate"] == 4]

    def read() -> dict[str, object]:
        found: dict[str, object] = site.call("GET", f"{path}/{operation['id']}")
        return found

    until(lambda: read()["state"] == "finished", "the end of the operation", DEADLINE_S)
    assert read()["done"] == len(jobs)
    for job in jobs:
        site.await_state(job, State.DEAD)


@pytest.mark.slow
def test_edit_and_retry_keeps_a_mebibyte(visit: Visit, site: Site) -> None:
    text = "\u00e9\U0001f600\n\\" + "x" * (MIB - 200)  # a call has at most 1 MiB
    job = site.shop.total.enqueue(2**63, text=text)
    site.await_state(job, State.DEAD)
    visit.open(f"jobs/{job.id}", "shop.total dead")
    visit.click("Edit and retry the job")
    names = visit.dialog.get_by_role("textbox").nth(1)
    names.evaluate(
        """(field) => {
          field.value = field.value.replace("{", '{"note": "checked", ');
          field.dispatchEvent(new Event("input", {bubbles: true}));
        }"""
    )
    visit.confirm("Save and retry")
    assert job.result(timeout=DEADLINE_S) == 2**63
    stored = site.call("GET", f"/v1/jobs/{job.id}")
    assert stored["kwargs"] == {"note": "checked", "text": text}
    assert stored["args"] == [2**63]
