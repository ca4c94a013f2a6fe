"""The fixtures of the contract suite. A test runs on every variant that can do what it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.variants import Variant, variants_with
from tests.contract.world import World
from windlass.engine.contract import Engine


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs(*capabilities): run only on engines that have these capabilities"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "variant" not in metafunc.fixturenames:
        return
    marks = metafunc.definition.iter_markers("needs")
    needed = frozenset(capability for mark in marks for capability in mark.args)
    metafunc.parametrize("variant", variants_with(needed), indirect=True)


@pytest.fixture
def variant(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Variant]:
    variant = Variant(request.param, tmp_path)
    yield variant
    variant.shutdown()


@pytest.fixture
def engine(variant: Variant) -> Engine:
    """An engine that runs by the real clock."""
    return variant.open()


@pytest.fixture
def world(variant: Variant) -> World:
    """An engine whose clock stands still until it is moved."""
    return World(variant)
