"""Fixtures of the browser tests: one browser and one site for all of them, a new context for each.

The browser ends with the last test of this folder, and not with the session: its event loop would
stay in the thread of all other tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest
from playwright.sync_api import Browser, StorageState

from tests.dashboard.browser.chromium import find_chromium, launched
from tests.dashboard.browser.site import Site, Stock
from tests.dashboard.browser.visit import Visit, log_in, visiting
from windlass.access_tokens import Role

#: Opens a visit as an admin of the shared site; the arguments are those of `visiting`.
Visiting = Callable[..., AbstractContextManager[Visit]]


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """The browser. Without it, tests are skipped on a laptop, and fail in a CI run."""
    try:
        find_chromium()
    except FileNotFoundError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with launched() as browser:
        yield browser


@pytest.fixture(scope="package")
def site(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The shared site. It needs the browser, so that it is not started for skipped tests."""
    with Site(tmp_path_factory.mktemp("site")) as site:
        site.start_worker()
        yield site


@pytest.fixture(scope="package")
def stock(site: Site) -> Stock:
    return Stock(site)


@pytest.fixture(scope="package")
def admin(chromium: Browser, site: Site) -> StorageState:
    return log_in(chromium, site.url, site.tokens[Role.ADMIN])


@pytest.fixture
def visitor(chromium: Browser, site: Site, admin: StorageState) -> Visiting:
    return partial(visiting, chromium, site.url, login=admin)


@pytest.fixture
def visit(visitor: Visiting) -> Iterator[Visit]:
    with visitor() as visit:
        yield visit
