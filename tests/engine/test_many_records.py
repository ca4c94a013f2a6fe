"""Thousands of records in one call."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.variants import Variant, parametrize
from tests.engine.conftest import new_job
from tests.soon import is_once
from windlass.engine.contract import Engine, Plan, Progressed, Retried, Succeeded

MANY = 20_000


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, "place", ["sqlite-file", "redis", "redis-4", "postgres"])


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    variant = Variant(request.param, tmp_path)
    yield variant.open()
    variant.shutdown()


def put_many(engine: Engine, number: int) -> list[str]:
    jobs = [new_job(id=engine.new_id("t", "q", None)) for _ in range(number)]
    engine.put(jobs)
    return [job.id for job in jobs]


def test_each_record_has_its_own_progress_result_and_history(place: Engine) -> None:
    """Jobs with and without them, and unknown ids, over more than one chunk of a call."""
    ids = put_many(place, 600)
    claims = place.turn("session", (), "nonce", Plan(), 500).batch.claims
    retried, succeeded, progressed = claims[10:20], claims[200:210], claims[205:300]
    for outcomes in (
        [Progressed(id=one.id, token=one.token, progress=one.id.encode()) for one in progressed],
        [Retried(id=one.id, token=one.token, delay_ms=0, error=one.id.encode()) for one in retried],
        [
            Succeeded(id=one.id, token=one.token, result=one.id.encode(), result_ttl_ms=60_000)
            for one in succeeded
        ],
    ):
        place.finish(outcomes)
    asked = [id for pair in zip(ids, (f"{id}-x" for id in ids), strict=True) for id in pair]
    records = place.get(asked)
    assert [record and record.id for record in records] == [
        id if number % 2 == 0 else None for number, id in enumerate(asked)
    ]
    found = [record for record in records if record is not None]
    assert {one.id for one in found if one.progress} == {one.id for one in progressed}
    assert {one.id for one in found if one.result} == {one.id for one in succeeded}
    assert {one.id for one in found if one.failures} == {one.id for one in retried}
    for one in found:
        own = one.id.encode()
        assert one.progress in (None, own)
        assert one.result in (None, own)
        assert [entry.error for entry in one.failures] in ([], [own])


@pytest.mark.slow
def test_twenty_thousand_records_are_read_in_a_second(place: Engine) -> None:
    ids = [id for _ in range(MANY // 500) for id in put_many(place, 500)]

    def is_read_in_time() -> bool:
        begin_s = time.perf_counter()
        assert None not in place.get(ids)
        return time.perf_counter() - begin_s < 1

    assert is_once(is_read_in_time)
