"""An engine whose texts are scripts, and a walk through every page that shows them.

1. `Taint` stores each payload in every text that windlass accepts: names of tasks and
   schedules, arguments and their names, headers, progress, log lines, errors, results, old
   arguments of edited jobs, filters of operations, and subjects of the audit trail.
2. `walk` opens each page with them, and each dialog that repeats them. It returns the number of
   pages; nothing of them must have run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from playwright.sync_api import Browser, expect

from tests.dashboard.browser.payloads import PAYLOADS, in_name
from tests.dashboard.browser.site import Site
from tests.dashboard.browser.visit import Visit, log_in, visiting
from windlass import Context, Every, Job, Retry, State
from windlass.access_tokens import Role

#: The files and pages that the dashboard asks for.
KNOWN_PATHS: Final = re.compile(r"/(static/.*|v1/.*|login|status|favicon\.ico)?")


class Taint:
    """The texts of a site: a job, a dead job, a schedule and an operation for each payload."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.dead: list[Job[Any]] = []
        self.succeeded: list[Job[Any]] = []
        with self.site.app.worker():
            for payload in PAYLOADS:
                self._store(payload)
            for job in self.dead:
                self.site.await_state(job, State.DEAD)
            for job in self.succeeded:
                self.site.await_state(job, State.SUCCEEDED)
        self._change()

    def _store(self, payload: str) -> None:
        app, name = self.site.app, in_name(payload)
        fail = app.task(name=name, takes_context=True, retry=Retry(max_attempts=1))(
            _failing(payload)
        )
        echo = app.task(name=f"{name}.echo")(_echo)
        headers = {"note": payload.replace("\n", " ")}
        self.dead.append(fail.using(headers=headers).enqueue(payload, **{payload: payload}))
        self.succeeded.append(echo.using(headers=headers).enqueue(payload))
        app.schedules.save(name, echo.bind(payload), Every("1h"))

    def _change(self) -> None:
        """Let each payload be the subject of a change, and the filter of an operation."""
        call = self.site.call
        for payload, job in zip(PAYLOADS, self.dead, strict=True):
            name = in_name(payload)
            call("POST", f"/v1/schedules/{quote(name, safe='')}/pause")
            call("POST", "/v1/dead/retry", {"filter": {"task": name}})
            self.site.await_state(job, State.READY)
            job.edit(payload, payload)
        with self.site.app.worker():
            for job in self.dead:
                self.site.await_state(job, State.DEAD)


def _failing(payload: str) -> Callable[..., None]:
    def fail(ctx: Context, *args: Any, **kwargs: Any) -> None:
        ctx.log(payload)
        ctx.progress(0.5, payload)
        raise type(payload, (Exception,), {})(payload)

    return fail


def _echo(text: str) -> str:
    return text


def walk(browser: Browser, tainted: Taint) -> int:
    """Open every page with the payloads, and return how many were opened."""
    site = tainted.site
    login = log_in(browser, site.url, site.tokens[Role.ADMIN])
    with visiting(browser, site.url, login=login) as visit:
        visit.watch.expects("status of 404")  # jobs whose ids are payloads
        visit.watch.expects("status of 422")
        visit.watch.expects("status of 401")  # a payload instead of a one-time login
        opened = _lists(visit) + _jobs(visit, tainted) + _addresses(visit) + _plain_pages(visit)
        unknown = {path for path in visit.watch.paths() if not KNOWN_PATHS.fullmatch(path)}
        assert not unknown, unknown
        return len(opened)


def check(visit: Visit) -> None:
    assert visit.run("window.ran") is None, visit.page.url


def _lists(visit: Visit) -> list[str]:
    views = {
        "": "Overview",
        "queues": "Queues",
        "jobs": "Jobs",
        "jobs?state=dead": "Jobs",
        "dead": "Dead jobs",
        "schedules": "Schedules",
        "operations": "Operations",
        "audit": "Audit trail",
        "workers": "Workers",
    }
    for view, title in views.items():
        visit.open(view, title)
        for summary in visit.page.locator("main summary:visible").all():
            summary.click()
        check(visit)
    visit.open("schedules", "Schedules")
    for button in visit.page.get_by_role("button", name="Run now").all():
        button.click()
        visit.page.get_by_text("The same from a shell").click()
        visit.page.keyboard.press("Escape")
        check(visit)
    return list(views)


def _jobs(visit: Visit, tainted: Taint) -> list[str]:
    """Each job, with its details open, its result, and the dialog that edits it."""
    main = visit.page.locator("main")
    for payload, job in zip(PAYLOADS, tainted.dead, strict=True):
        visit.open(f"jobs/{job.id}", in_name(payload))
        expect(main.locator(".error-title").first).to_contain_text(payload.strip())
        for summary in main.locator("summary:visible").all():
            summary.click()
        visit.click("Edit and retry the job")
        visit.page.get_by_text("The same from a shell").click()
        visit.page.keyboard.press("Escape")
        check(visit)
    for payload, job in zip(PAYLOADS, tainted.succeeded, strict=True):
        visit.open(f"jobs/{job.id}", in_name(payload))
        visit.click("Show the result")
        expect(visit.page.get_by_role("region", name="Result")).to_be_visible()
        check(visit)
    return [job.id for job in (*tainted.dead, *tainted.succeeded)]


def _addresses(visit: Visit) -> list[str]:
    """Payloads in the address itself."""
    for payload in PAYLOADS:
        text = quote(payload, safe="")
        for address in (f"jobs?task={text}&queue={text}&since={text}", f"jobs/{text}", text):
            visit.page.goto(f"{visit.url}/#/{address}")
            visit.page.locator("main :is(.empty, .problem, .wrong:not(:empty))").first.wait_for()
            check(visit)
    return [*PAYLOADS] * 3


def _plain_pages(visit: Visit) -> list[str]:
    """The pages that the server renders."""
    visit.page.goto(f"{visit.url}/status?refresh=off")
    expect(visit.page.locator("body")).to_contain_text("<script>window.ran=1</script>")
    check(visit)
    for payload in PAYLOADS:
        visit.page.goto(f"{visit.url}/login?code={quote(payload, safe='')}")
        expect(visit.page.locator("main")).to_contain_text("no one-time login")
        check(visit)
    return ["status", *PAYLOADS]
