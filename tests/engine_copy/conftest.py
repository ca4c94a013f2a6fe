"""Pairs of places, on the engines between which jobs are copied."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

from tests.contract.variants import Variant
from tests.engine_copy.sides import Sides
from windlass.testing.contract.world import World

ENGINES: Final = ("sqlite-file-normal", "redis", "redis-4", "postgres")
#: Each engine is once a source and once a target.
PAIRS: Final = (
    ("sqlite-file-normal", "postgres"),
    ("postgres", "redis-4"),
    ("redis-4", "redis"),
    ("redis", "sqlite-file-normal"),
)


def _pairs() -> Iterator[Any]:
    """All pairs. Those that are not in `PAIRS` are slow."""
    for pair in product(ENGINES, repeat=2):
        marks = [] if pair in PAIRS else [pytest.mark.slow]
        yield pytest.param(pair, id="-".join(pair), marks=marks)


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


@pytest.fixture(params=_pairs())
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


@pytest.fixture
def transactional(tmp_path: Path) -> Iterator[Sides]:
    """The same with a source whose transactions overlap."""
    yield from _open(tmp_path, ("postgres", "sqlite-file-normal"))
