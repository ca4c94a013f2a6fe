"""Fixtures for the tests of the dashboard: those of the HTTP API, and a browser."""

from __future__ import annotations

import pytest

from tests.dashboard.cookie_browser import CookieBrowser
from tests.http.client import Client
from tests.http.conftest import (
    api,
    app,
    caller,
    client,
    engine_url,
    hand,
    loop,
    options,
    short_token_cache,
)

__all__ = [
    "api",
    "app",
    "caller",
    "client",
    "engine_url",
    "hand",
    "loop",
    "options",
    "short_token_cache",
]


@pytest.fixture
def browser(client: Client) -> CookieBrowser:
    return CookieBrowser(client)
