"""A visit to the dashboard in a real browser.

1. `Watch` collects what must not happen in a page: errors on the console, exceptions, violations of
   the content security policy, dialogs of the browser, and requests to other hosts.
2. `Visit` is one page of a new context, with the steps that many tests take.
3. `visiting` opens a visit, and checks its watch at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    Request,
    StorageState,
    expect,
)

#: How long a page may take to show something, in milliseconds: long, for a busy machine.
PATIENCE_MS: Final = 15_000
WIDE: Final = (1280, 800)
PHONE: Final = (390, 844)

_REPORT_VIOLATIONS: Final = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`violation of ${event.violatedDirective} by ${event.blockedURI} ${event.sample}`));
"""

expect.set_options(timeout=PATIENCE_MS)


class Watch:
    """What went wrong in the pages of a context."""

    def __init__(self, context: BrowserContext, host: str) -> None:
        self._host = host
        self._expected: list[re.Pattern[str]] = []
        self.found: list[str] = []
        self.requests: list[Request] = []
        context.add_init_script(_REPORT_VIOLATIONS)
        context.on("console", self._on_console)
        context.on("weberror", lambda error: self.found.append(f"exception: {error.error}"))
        context.on("dialog", self._on_dialog)
        context.on("request", self._on_request)

    def expects(self, pattern: str) -> None:
        """Accept problems that match: the test causes them."""
        self._expected.append(re.compile(pattern))

    def check(self) -> None:
        unexpected = [
            problem
            for problem in self.found
            if not any(pattern.search(problem) for pattern in self._expected)
        ]
        assert not unexpected, unexpected

    def paths(self) -> list[str]:
        """The paths of all requests."""
        return [urlsplit(request.url).path for request in self.requests]

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.found.append(f"console: {message.text} ({message.location['url']})")

    def _on_dialog(self, dialog: Dialog) -> None:
        self.found.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_request(self, request: Request) -> None:
        self.requests.append(request)
        parts = urlsplit(request.url)
        if parts.scheme != "data" and parts.netloc != self._host:
            self.found.append(f"request to another host: {request.url}")


class Visit:
    """One page, and the steps of its visitor."""

    def __init__(self, page: Page, watch: Watch, url: str) -> None:
        self.page = page
        self.watch = watch
        self.url = url

    def log_in(self, token: str) -> None:
        self.page.goto(f"{self.url}/login")
        self.page.get_by_label("Access token").fill(token)
        self.page.get_by_role("button", name="Log in").click()
        self.page.wait_for_url(f"{self.url}/")

    def open(self, view: str, title: str) -> None:
        """Open a view by its address, such as "jobs?state=dead", and wait for its data."""
        self.page.goto(f"{self.url}/#/{view}")
        self.await_title(title)

    def await_title(self, title: str) -> None:
        expect(self.page.locator("main h1")).to_contain_text(title)

    def await_live(self) -> None:
        """Wait for the first event of the stream."""
        expect(self.page.locator("#top")).to_contain_text("Live")

    def click(self, name: str, within: Locator | None = None) -> None:
        (within or self.page).get_by_role("button", name=name, exact=True).click()

    @property
    def dialog(self) -> Locator:
        return self.page.locator("dialog[open]")

    def confirm(self, label: str) -> None:
        """Confirm the open dialog, and wait for its end."""
        self.click(label, self.dialog)
        expect(self.dialog).to_have_count(0)

    def row(self, text: str) -> Locator:
        """The rows of tables with this text."""
        return self.page.locator("tbody tr").filter(has_text=text)

    def run(self, script: str, argument: object = None) -> Any:
        return self.page.evaluate(script, argument)


@contextmanager
def visiting(
    browser: Browser,
    url: str,
    *,
    login: StorageState | None = None,
    size: tuple[int, int] = WIDE,
    **options: Any,
) -> Iterator[Visit]:
    """Open a page in a new context, and check at the end that nothing went wrong in it."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, storage_state=login, **options
    )
    context.set_default_timeout(PATIENCE_MS)
    try:
        watch = Watch(context, urlsplit(url).netloc)
        yield Visit(context.new_page(), watch, url)
        watch.check()
    finally:
        context.close()


def log_in(browser: Browser, url: str, token: str) -> StorageState:
    """The cookies of a visitor who has logged in."""
    with visiting(browser, url) as visit:
        visit.log_in(token)
        visit.await_title("Overview")
        return visit.page.context.storage_state()
