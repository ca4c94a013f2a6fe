"""Pairs of places, on the engines between which jobs are copied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.contract.variants import Variant
from tests.engine_copy.sides import Sides
from windlass.testing.contract.world import World

PAIRS: Final = (
    ("sqlite-file-normal", "redis"),
    ("redis", "sqlite-file-normal"),
    ("sqlite-file-normal", "redis-4"),
    ("redis-4", "sqlite-file-normal"),
)


def _open(tmp_path: Path, names: tuple[str, str]) -> Iterator[Sides]:
    places = []
    for role, name in zip(("source", "target"), names, strict=True):
        folder = tmp_path / role
        folder.mkdir()
        places.append(Variant(name, folder))
    source, target = (World(place) for place in places)
    yield Sides(source, target, tmp_path)
    for place in places:
        place.shutdown()


@pytest.fixture(params=PAIRS, ids="-".join)
def sides(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sides]:
    """A source and a target, whose clocks stand still at the same instant."""
    yield from _open(tmp_path, request.param)


@pytest.fixture
def third(tmp_path: Path) -> Iterator[World]:
    """Another place, which is neither source nor target."""
    folder = tmp_path / "third"
    folder.mkdir()
    place = Variant("sqlite-file-normal", folder)
    yield World(place)
    place.shutdown()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Sides]:
    """The same for tests in which the engines do not matter."""
    yield from _open(tmp_path, ("sqlite-file-normal", "sqlite-file-normal"))
