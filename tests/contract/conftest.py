"""The fixtures of the contract suite. A test runs on every variant with the needed capabilities."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.contract.variants import Variant, parametrize
from windlass.engine.contract import Engine
from windlass.engine.redis import partitions
from windlass.testing.contract.world import World

#: Tests that fill an engine up to a limit of the contract.
LONG: Final = frozenset({"test_the_oldest_entries_go"})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, "variant")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests of `sqlite-file-normal` as slow: one pragma sets it apart from `sqlite-file`. By
    default it is only compared with the model. So are tests that need seconds on some engine."""
    for item in items:
        variant = getattr(item, "callspec", None)
        is_normal = variant and variant.params.get("variant") == "sqlite-file-normal"
        if is_normal or item.name.partition("[")[0] in LONG:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="package")
def first_partition() -> Iterator[None]:
    """Let engines with several partitions begin with the first, so that failures repeat."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "any_of", lambda number: 0)
        yield


@pytest.fixture
def variant(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Variant]:
    variant = Variant(request.param, tmp_path)
    yield variant
    variant.shutdown()


@pytest.fixture
def engine(variant: Variant) -> Engine:
    """An engine with the real clock."""
    return variant.open()


@pytest.fixture
def world(variant: Variant) -> World:
    """An engine whose clock stands still until a test moves it."""
    return World(variant)


@pytest.fixture
def other_world(variant: Variant) -> Iterator[World]:
    """Another place of the same kind."""
    folder = variant.folder / "other"
    folder.mkdir()
    other = Variant(variant.name, folder)
    yield World(other)
    other.shutdown()
