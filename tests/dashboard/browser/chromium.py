"""The browser of the tests: Debian's chromium, driven by playwright.

1. `find_chromium` finds the program.
2. `launched` starts one browser and ends it. While it runs, the thread has a running event loop, so
   nothing else in that thread can call `asyncio.run`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, sync_playwright

#: The names of the program; the last ones are those of other systems.
NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
ABSENT: Final = (
    "There is no chromium here. Install it (on Debian: apt install chromium), or Google Chrome."
)
#: Tests run as root in containers, where the sandbox of the browser cannot start. The rest keeps it
#: from calling other hosts by itself.
ARGUMENTS: Final = ("--no-sandbox", "--disable-background-networking", "--no-first-run")


def find_chromium() -> str:
    for name in NAMES:
        if found := shutil.which(name):
            return found
    raise FileNotFoundError(ABSENT)


@contextmanager
def launched() -> Iterator[Browser]:
    program = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()
