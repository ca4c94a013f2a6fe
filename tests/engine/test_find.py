"""Pages of jobs by time: they read ids of that time only, and allow for clocks that differ."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.variants import Variant, parametrize
from tests.engine.conftest import new_job
from windlass.core.ids import new_id
from windlass.engine.contract import MAX_CLOCK_SKEW_MS, Engine, Filter
from windlass.engine.redis import read as redis_read
from windlass.engine.sqlite.verbs import read as sqlite_read

HOUR_MS = 60 * 60 * 1000


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, "place", ["sqlite-file", "redis", "redis-4"])


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    variant = Variant(request.param, tmp_path)
    yield variant.open()
    variant.shutdown()


def put_hours_ago(engine: Engine, hours: int, skew_ms: int = 0, number: int = 1) -> list[str]:
    """Put jobs as their producers did then; their clocks differ from the engine's."""
    engine.clock_offset_ms = -hours * HOUR_MS
    made_ms = time.time_ns() // 1_000_000 - hours * HOUR_MS + skew_ms
    jobs = [new_job(id=new_id(made_ms + at, at % 4)) for at in range(number)]
    engine.put(jobs)
    engine.clock_offset_ms = 0
    return [job.id for job in jobs]


def test_a_page_by_time_reads_ids_of_that_time_only(
    place: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The few old jobs are on the first page, however many newer ones there are."""
    (old,) = put_hours_ago(place, 10)
    (middle,) = put_hours_ago(place, 5)
    put_hours_ago(place, 0, number=60)
    monkeypatch.setattr(redis_read, "SCAN_BUDGET", 20)
    monkeypatch.setattr(sqlite_read, "SCAN_BUDGET", 20)
    now_ms = time.time_ns() // 1_000_000

    page = place.find(Filter(since_ms=now_ms - 7 * HOUR_MS, until_ms=now_ms - 3 * HOUR_MS))
    assert [record.id for record in page.records] == [middle]
    assert page.cursor is None
    page = place.find(Filter(until_ms=now_ms - 3 * HOUR_MS), limit=1)
    assert [record.id for record in page.records] == [middle]
    page = place.find(Filter(until_ms=now_ms - 3 * HOUR_MS), page.cursor, limit=1)
    assert [record.id for record in page.records] == [old]


@pytest.mark.parametrize("skew_ms", [MAX_CLOCK_SKEW_MS - 60_000, 60_000 - MAX_CLOCK_SKEW_MS])
def test_a_page_by_time_allows_for_clocks_of_producers(place: Engine, skew_ms: int) -> None:
    (skewed,) = put_hours_ago(place, 5, skew_ms)
    put_hours_ago(place, 0)
    (found,) = place.find(Filter(until_ms=time.time_ns() // 1_000_000 - HOUR_MS)).records
    assert found.id == skewed
    window = Filter(since_ms=found.created_ms, until_ms=found.created_ms + 1)
    assert [record.id for record in place.find(window).records] == [skewed]
