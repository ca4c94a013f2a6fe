"""A list with a filter: the server leaves out what the filter excludes, so that a page which reads
thousands of records sends and decodes only those that it lists."""

from __future__ import annotations

import pytest

from tests.engine.conftest import OpenRedis, new_job
from tests.redis_server import RedisServer
from windlass.core.queues.labels import line_of
from windlass.engine.contract import Filter
from windlass.engine.redis import decode
from windlass.engine.redis.engine import RedisEngine

MANY = 300


@pytest.fixture
def engine(server: RedisServer, open_redis: OpenRedis) -> RedisEngine:
    """Many jobs, and two of another task in lines of another queue: with and without a label."""
    engine = open_redis(server.url())
    engine.put([new_job(number) for number in range(MANY)])
    lines = ("rare", line_of("rare", ["gpu"]))
    engine.put([new_job(MANY + at, task="r", queue=line) for at, line in enumerate(lines)])
    engine.put([new_job(MANY + 2, queue="rarely")])
    return engine


@pytest.mark.parametrize(
    ("filter", "listed"),
    [
        (Filter(task="r"), 2),
        (Filter(queue="rare"), 2),
        (Filter(task="r", queue="q"), 0),
        (Filter(task="unknown"), 0),
        (Filter(until_ms=1_000), 0),
        (Filter(since_ms=4_000_000_000_000), 0),
        (Filter(task="r", since_ms=1_000, until_ms=4_000_000_000_000), 2),
    ],
)
def test_only_listed_records_are_decoded(
    engine: RedisEngine, monkeypatch: pytest.MonkeyPatch, filter: Filter, listed: int
) -> None:
    decoded: list[bytes] = []
    real = decode.decode

    def counted(packed: bytes) -> decode.Record:
        decoded.append(packed)
        return real(packed)

    monkeypatch.setattr(decode, "decode", counted)
    page = engine.find(filter, limit=50)
    assert (len(page.records), page.cursor) == (listed, None)
    assert len(decoded) == listed
