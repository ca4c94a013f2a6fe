"""A worker runs every healthy job despite index entries without a job."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.contract.variants import fresh_url
from tests.worker.yard import until
from windlass import Windlass
from windlass.core.states import Reason, State
from windlass.engine.redis import keys
from windlass.engine.redis.client import scripts
from windlass.engine.redis.engine import RedisEngine
from windlass.engine.redis.url import read_address

JOBS = 20


def double(number: int) -> int:
    return 2 * number


def measure(text: str) -> int:
    return len(text)


def damage(app: Windlass, url: str, job_id: str) -> None:
    """Take the payload of a job away, and lead indexes astray."""
    if not isinstance(app.engine, RedisEngine):
        vandal = apsw.Connection(url.removeprefix("sqlite:///"))
        ((row,),) = vandal.execute("SELECT row FROM jobs WHERE id = ?", (job_id,))
        vandal.execute("DELETE FROM payloads WHERE job = ?", (row,))
        vandal.execute("UPDATE counters SET number = 0")
        vandal.execute("UPDATE jobs SET due_ms = 1 WHERE id <> ?", (job_id,))
        vandal.close()
        return
    server, namespace = app.engine._server, read_address(url).namespace
    partition = app.engine._partitions.of_id(job_id)

    def tell(command: bytes, name: str, *words: bytes) -> None:
        key = keys.key(namespace, partition, name).encode()
        server.ask([scripts.pack(command, key, *words)], server.deadline())

    tell(b"HDEL", "body", job_id.encode())
    tell(b"ZADD", "ready", b"0", b"0default\0" + b"\0" * 11 + b"ghost")
    tell(b"ZADD", "due", b"1", b"\0" * 7 + b"ghost")
    tell(b"ZADD", "keep", b"1", b"ghost")
    tell(b"HSET", "count", b"default\0ready", b"77")


@pytest.mark.parametrize("name", ["sqlite-file", "redis", "redis-4"])
def test_every_healthy_job_runs(tmp_path: Path, name: str) -> None:
    url = fresh_url(name, tmp_path)
    with Windlass(url) as app:
        task = app.task(name="double")(double)
        jobs = [task.enqueue(number) for number in range(JOBS)]
        empty = app.task(name="measure")(measure).enqueue("x" * 2_000)  # stored apart
        damage(app, url, empty.id)
        with app.worker():
            assert [job.result(timeout=20) for job in jobs] == list(range(0, 2 * JOBS, 2))
            until(
                lambda: empty.info().state is State.DEAD, "the one without a payload to be buried"
            )
        (record,) = app.engine.get([empty.id])
        assert record is not None
        assert record.reason is Reason.UNDECODABLE
        assert app.engine.stats().totals["orphans"] >= 1
        bite = app.engine.repair(change=True)
        while bite.cursor is not None:
            bite = app.engine.repair(bite.cursor, change=True)
        assert app.engine.check() == []
