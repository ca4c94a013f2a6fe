"""An app with one scripted task of each kind, in a sandbox."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from windlass import Windlass
from windlass.testing import Sandbox


@pytest.fixture
def app() -> Windlass:
    """An app whose own engine cannot be opened: its folder does not exist."""
    return Windlass("sqlite:////there/is/no/such/folder/jobs.db")


@pytest.fixture
def box(app: Windlass) -> Iterator[Sandbox]:
    with Sandbox(app) as box:
        yield box
