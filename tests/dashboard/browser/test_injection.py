"""No script in a stored text runs: 40 payloads in every text, on every page."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Page, TimeoutError

from tests.dashboard.browser.injection import Taint, walk
from tests.dashboard.browser.payloads import PAYLOADS, in_name
from tests.dashboard.browser.site import Site
from windlass import SettingError, Windlass
from windlass.access_tokens import Role

#: Places in which a page without care would put a text.
CARELESS = (
    "<p>%s</p>",
    '<input value="%s">',
    "<input value='%s'>",
    '<img src="%s">',
    "<title>%s</title>",
    "<textarea>%s</textarea>",
    '<script>const text = "%s";</script>',
    "<script>const text = '%s';</script>",
    "<script>const text = `%s`;</script>",
    '<a href="%s" id="link">link</a>',
)


def test_there_are_40_payloads_and_all_differ() -> None:
    assert len({in_name(payload) for payload in PAYLOADS}) == 40


@pytest.mark.slow
def test_payloads_run_in_a_page_without_care(chromium: Browser) -> None:
    """The payloads are live; those for templates need a framework that is not here."""
    context = chromium.new_context()
    page = context.new_page()
    harmless = [
        payload
        for payload in PAYLOADS
        if not any(runs(page, place % payload) for place in CARELESS)
    ]
    context.close()
    assert [payload for payload in harmless if not payload.startswith("{{")] == []


def runs(page: Page, markup: str) -> bool:
    """Whether a page with this markup runs its script."""
    page.goto("about:blank")
    page.set_content(markup)
    page.evaluate("document.getElementById('link')?.click()")
    try:
        page.wait_for_function("() => window.ran === 1", timeout=300)
    except TimeoutError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_no_payload_runs_on_any_page(chromium: Browser, tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        assert walk(chromium, Taint(site)) > 200


@pytest.mark.slow
@pytest.mark.parametrize("payload", PAYLOADS)
def test_other_names_refuse_payloads(payload: str, site: Site) -> None:
    """Queues, labels, names of headers, releases, access tokens and workers."""
    letter = site.shop.letter
    with pytest.raises(ValueError, match="queue must be"):
        letter.using(queue=payload)
    with pytest.raises(ValueError, match="a label is"):
        letter.using(requires=[payload])
    with pytest.raises(ValueError, match="a name must be"):
        letter.using(headers={payload: "x"})
    with pytest.raises(SettingError):
        Windlass(site.engine_url, release=payload)
    with pytest.raises(ValueError, match="name must be"):
        site.app.access_tokens.create(name=payload, role=Role.VIEWER)
    headers = {"Authorization": f"Bearer {site.tokens[Role.ADMIN]}"}
    answer = httpx.post(
        f"{site.url}/v1/sessions", json={"name": payload, "tasks": ["x"]}, headers=headers
    )
    assert answer.status_code == 422
    answer = httpx.post(f"{site.url}/v1/queues/{quote(payload, safe='')}/pause", headers=headers)
    assert answer.status_code in (404, 422)
