"""Shops on both kinds of databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outbox.databases import Shop, postgres_shop, sqlite_shop
from windlass import Windlass
from windlass.outbox.connect import open_outbox
from windlass.outbox.rows import OutboxRows


@pytest.fixture(params=["postgresql", "sqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    return postgres_shop() if request.param == "postgresql" else sqlite_shop(tmp_path)


@pytest.fixture
def rows(shop: Shop) -> Iterator[OutboxRows]:
    rows = open_outbox(shop.url)
    yield rows
    rows.close()


@pytest.fixture
def app(shop: Shop, tmp_path: Path) -> Iterator[Windlass]:
    """An app of the shop, with its jobs in a file."""
    with Windlass(f"sqlite:///{tmp_path}/jobs.db", outbox=shop.url.url) as app:
        yield app
