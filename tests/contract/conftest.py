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
#: Tests that write thousands of records, on an engine that is a round trip away from its caller.
LONG_ON_POSTGRES: Final = frozenset(
    {
        "test_more_bytes_than_a_batch_has",
        "test_one_bite_of_what_sessions_say_is_bounded",
        "test_sessions_that_beat_meanwhile_hide_no_silent_one",
        "test_the_bytes_of_one_sweep_are_bounded",
        "test_the_number_of_documents_of_a_kind_is_limited",
    }
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, "variant")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests of `sqlite-file-normal` as slow: one pragma sets it apart from `sqlite-file`. By
    default it is only compared with the model. So are tests that need seconds on some engine."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        variant = callspec.params.get("variant") if callspec else None
        long = LONG | LONG_ON_POSTGRES if variant == "postgres" else LONG
        if variant == "sqlite-file-normal" or item.name.partition("[")[0] in long:
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
