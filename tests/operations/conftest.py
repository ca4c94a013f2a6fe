"""Apps on each engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.variants import fresh_url
from tests.operations.dead_jobs import new_app
from windlass import Windlass

VARIANTS = ["sqlite-file", "redis", "redis-4", pytest.param("postgres", marks=pytest.mark.slow)]


@pytest.fixture(params=VARIANTS)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Windlass]:
    with new_app(fresh_url(request.param, tmp_path)) as app:
        yield app


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Windlass]:
    """An app for tests in which the engine does not matter."""
    with new_app(f"sqlite:///{tmp_path}/local.db?durability=normal") as app:
        yield app
