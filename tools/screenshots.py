"""Take the pictures of the dashboard: `python -m tools.screenshots`, or `make screenshots`.

1. Start `windlass demo --serve`, which has an hour of the past and a running worker.
2. Take every page with the browser of the tests, in 1280 and 390 px, in light and dark, whole. They
   go to `build/screenshots`, to be looked at.
3. Take the pictures of the README and of the guides, as much as a window shows. They go to
   `docs/_static`.

The pages are watched as in the tests: an error on the console ends the tool with an error.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal

import httpx
from playwright.sync_api import Browser

from tests.dashboard.browser.chromium import launched
from tests.dashboard.browser.visit import PHONE, WIDE, Visit, visiting
from tools.palette_png import shrink

PROJECT: Final = Path(__file__).parent.parent
REVIEW: Final = PROJECT / "build" / "screenshots"
STATIC: Final = PROJECT / "docs" / "_static"
#: How long the demo may take to make its past, in seconds.
PATIENCE_S: Final = 120.0

Scheme = Literal["light", "dark"]
SCHEMES: Final[tuple[Scheme, ...]] = ("light", "dark")
#: The pictures of the documentation: a page, and its schemes.
PICTURES: Final[dict[str, tuple[Scheme, ...]]] = {
    "overview": ("light", "dark"),
    "dead": ("light", "dark"),
    "job": ("light", "dark"),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.screenshots", description=__doc__)
    parser.add_argument("--review", type=Path, default=REVIEW, help="the folder of all pages")
    parser.add_argument("--pictures", type=Path, default=STATIC, help="the folder of the pictures")
    folders = parser.parse_args()
    with demo() as url, launched() as browser:
        for file in take_all(browser, url, folders.review, folders.pictures):
            print(file)
    return 0


@contextmanager
def demo() -> Iterator[str]:
    """The live demo; its address. Its data ends with it."""
    with tempfile.TemporaryDirectory(prefix="windlass-pictures-") as folder:
        command = [sys.executable, "-m", "windlass", "demo", "--serve"]
        environment = {**os.environ, "TMPDIR": folder}
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=PROJECT, env=environment, stdout=output, stderr=output
            )
        try:
            yield _await_answer(process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _await_answer(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the demo serves its dashboard, and its alerts know that a worker is live."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        url = log.read_text().partition("\n")[0].rstrip("/")
        try:
            if url.startswith("http") and _is_settled(url):
                return url
        except httpx.TransportError:
            pass  # the demo makes its past
        time.sleep(0.1)
    raise RuntimeError(f"windlass demo --serve does not answer. Its output:\n{log.read_text()}")


def _is_settled(url: str) -> bool:
    alerts = _ask(url, "alerts")["alerts"]
    return bool(_ask(url, "workers")["workers"]) and not any(
        alert["rule"].startswith("no_worker") for alert in alerts if alert["state"] != "ok"
    )


def take_all(browser: Browser, url: str, review: Path, pictures: Path) -> Iterator[Path]:
    """Take all pictures, and give their files."""
    pages = find_pages(url)
    for folder in (review, pictures):
        folder.mkdir(parents=True, exist_ok=True)
    for size, scheme in product((WIDE, PHONE), SCHEMES):
        with visiting(browser, url, size=size, color_scheme=scheme) as visit:
            for name, (address, title) in pages.items():
                _open(visit, address, title)
                yield _take(visit, review / f"{name}-{size[0]}-{scheme}.png")
                if size == WIDE and scheme in PICTURES.get(name, ()):
                    yield _take_picture(visit, pictures / f"dashboard-{name}-{scheme}.png")


def find_pages(url: str) -> dict[str, tuple[str, str]]:
    """The address and the title of every page, by its name; those of jobs of the demo too."""

    def job(filter: str) -> tuple[str, str]:
        """The job that has the most attempts, of those that match."""
        found = _ask(url, f"jobs?{filter}&limit=200")["jobs"]
        first = max(found, key=lambda one: int(one["attempts"]))
        return f"#/jobs/{first['id']}", first["task"]

    return {
        "overview": ("#/", "Overview"),
        "overview-24h": ("#/?span=24h", "Overview"),
        "queues": ("#/queues", "Queues"),
        "jobs": ("#/jobs", "Jobs"),
        "job": job("state=dead"),
        "job-ready": job("state=ready&queue=imports"),
        "job-succeeded": job("state=succeeded"),
        "dead": ("#/dead", "Dead jobs"),
        "schedules": ("#/schedules", "Schedules"),
        "workers": ("#/workers", "Workers"),
        "operations": ("#/operations", "Operations"),
        "audit": ("#/audit", "Audit"),
        "login": ("login", ""),
        "status": ("status?refresh=off", ""),
    }


def _ask(url: str, path: str) -> Any:
    return httpx.get(f"{url}/v1/{path}", timeout=PATIENCE_S).json()


def _open(visit: Visit, address: str, title: str) -> None:
    visit.page.goto("about:blank")  # two views of one page have the same title
    visit.page.goto(f"{visit.url}/{address}")
    if title:
        visit.await_title(title)
        visit.page.locator("main .skeleton").wait_for(state="detached")
    visit.page.evaluate("document.activeElement?.blur()")


def _take(visit: Visit, file: Path) -> Path:
    """Take a whole page."""
    visit.page.screenshot(path=file, full_page=True, animations="disabled", caret="hide")
    return file


def _take_picture(visit: Visit, file: Path) -> Path:
    """Take what a window shows, without what differs between machines: the paths in tracebacks, and
    the place of the engine in the footer."""
    for opened in visit.page.locator("main details[open] > summary").all():
        opened.click()
    visit.page.evaluate("document.activeElement?.blur()")
    visit.page.mouse.move(0, 0)
    bottom = visit.run("Math.floor(document.querySelector('main').getBoundingClientRect().bottom)")
    width, height = WIDE
    taken = visit.page.screenshot(
        clip={"x": 0, "y": 0, "width": width, "height": min(height, bottom)},
        animations="disabled",
        caret="hide",
    )
    file.write_bytes(shrink(taken))
    return file


if __name__ == "__main__":
    sys.exit(main())
