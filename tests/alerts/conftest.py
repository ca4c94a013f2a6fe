"""Fixtures for the tests of alerts: an app on each engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.alerts.helpers import take_number
from tests.contract.variants import fresh_url
from windlass import Windlass


@pytest.fixture(params=["sqlite-file", "redis-4", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


@pytest.fixture
def app(url: str) -> Iterator[Windlass]:
    with Windlass(url) as app:
        app.task(name="number")(take_number)
        yield app
