"""An app on a real SQLite file, and a hand that plays the worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.hand import Hand
from windlass import Windlass


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Windlass]:
    with Windlass(f"sqlite:///{tmp_path}/jobs.db?durability=normal") as app:
        yield app


@pytest.fixture
def hand(app: Windlass) -> Hand:
    return Hand(app)
