"""The fixtures of the suite, for the conftest.py of an engine.

    pytest_plugins = ["windlass.testing.contract.plugin"]

    @pytest.fixture
    def new_place(tmp_path): ...   # a function that gives a fresh Place at every call

A test that needs a capability which the place does not have is skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from windlass.engine.contract import Engine
from windlass.testing.contract.place import Place
from windlass.testing.contract.world import World


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs(*capabilities): run only on engines that have these capabilities"
    )


@pytest.fixture
def new_place() -> Callable[[], Place]:
    """Return a function that makes an empty place. Override this fixture."""
    pytest.fail(
        "The contract suite does not know your engine. Write a fixture `new_place` that returns a "
        "function that makes a new windlass.testing.contract.place.Place at every call.",
        pytrace=False,
    )


@pytest.fixture
def variant(request: pytest.FixtureRequest, new_place: Callable[[], Place]) -> Iterator[Place]:
    place = new_place()
    lacking = _needs(request).difference(map(str, place.capabilities))
    if lacking:
        pytest.skip(f"needs {', '.join(sorted(lacking))}")
    yield place
    place.remove()


def _needs(request: pytest.FixtureRequest) -> set[str]:
    """The capabilities that a test needs. A test that `suite` exports to another module has only
    its own marks there, so the mark of its first module is read too."""
    of_module = getattr(sys.modules[request.function.__module__], "pytestmark", None)
    marks = [*request.node.iter_markers("needs"), *([] if of_module is None else [of_module.mark])]
    return {str(one) for mark in marks if mark.name == "needs" for one in mark.args}


@pytest.fixture
def engine(variant: Place) -> Engine:
    """Make an engine with the real clock."""
    return variant.open()


@pytest.fixture
def world(variant: Place) -> World:
    """Make an engine with a clock that moves only when a test moves it."""
    return World(variant)


@pytest.fixture
def other_world(new_place: Callable[[], Place]) -> Iterator[World]:
    """Make an engine of the same kind on another place, with such a clock."""
    place = new_place()
    yield World(place)
    place.remove()
