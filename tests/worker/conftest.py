"""The fixtures of the worker's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.variants import fresh_url, parametrize
from tests.worker.yard import Yard

MakeYard = Callable[..., Yard]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, "url", ["sqlite-file", "redis", "redis-4", "postgres"])


#: They take long on each engine, and are slow tests on those that differ little for them.
LONG = {
    f"test_{name}.py"
    for name in (
        *("autoscale", "burst", "cancel", "child_process", "deaths", "fleet", "health_socket"),
        *("hooks", "keeping", "operator_commands"),
        *("lifespan", "pipeline", "plans", "predecessors", "recycling", "stopping", "timeouts"),
        *("recount", "unique", "watchdog"),
    )
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is marked as local says little about engines: on all but one of them it is slow."""
    for item in items:
        variant = getattr(item, "callspec", None)
        url = variant.params.get("url") if variant else None
        is_local = item.get_closest_marker("local") and url not in (None, "sqlite-file")
        if is_local or (item.path.name in LONG and url in ("redis-4", "postgres")):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the jobs of a test are; a worker must be good for every engine."""
    return fresh_url(request.param, tmp_path)


@pytest.fixture
def make_yard(tmp_path: Path, url: str) -> Iterator[MakeYard]:
    """Make the yard of a test with other settings than the usual ones."""
    yards: list[Yard] = []

    def make(
        *, lease: str = "30s", grace: str = "10s", max_crashes: int = 3, kill_after: str = "5s"
    ) -> Yard:
        yards.append(Yard(tmp_path, lease, grace, max_crashes, url, kill_after))
        return yards[-1]

    yield make
    for yard in yards:
        yard.close()


@pytest.fixture
def yard(make_yard: MakeYard) -> Yard:
    return make_yard()
