"""A namespace of the format before is brought forward: from dumps that windlass of that format
wrote, with a job in every state."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.engine.conftest import OpenRedis
from tests.redis_server import RedisServer
from windlass.cli.commands.migrate import migrate
from windlass.core.states import State
from windlass.engine.contract import (
    Filter,
    JobRecord,
    NewJob,
    Plan,
    PutCode,
    QueueChange,
    UniqueKey,
)
from windlass.engine.redis import keys
from windlass.engine.redis.client import scripts
from windlass.engine.redis.engine import RedisEngine
from windlass.engine.redis.migrate import old_prefix
from windlass.errors import EngineError
from windlass.testing.contract.world import StandingStill

DUMPS = Path(__file__).parent / "formats"
#: In the dumps, this session runs a job and lives; another one has lost its lease.
LIVE = "live.77.8899aabbccddeeff"


def url_of(server: RedisServer, partitions: int) -> str:
    """Without the user of the tests, who has no right to the names of the old keys."""
    return f"redis://127.0.0.1:{server.port}/0?namespace=windlass&partitions={partitions}"


class Old:
    """A server with a namespace of format 3, and an engine of this version for it."""

    def __init__(self, server: RedisServer, open_redis: OpenRedis, partitions: int) -> None:
        self.dump: dict[str, Any] = json.loads(
            (DUMPS / f"3-partitions-{partitions}.json").read_text(encoding="utf-8")
        )
        self.partitions = partitions
        self.engine = open_redis(url_of(server, partitions))
        # When the last silence of all workers is over, and before the next lease ends.
        self.now_ms: int = self.dump["now_ms"] + 6_000
        self.stand_at(self.now_ms)
        self.records = [msgspec.convert(one, JobRecord) for one in self.dump["records"]]
        for name, stored in self.dump["keys"].items():
            for field, value in stored.get("hash", {}).items():
                self.tell(b"HSET", name.encode(), b64decode(field), b64decode(value))
            for member, score in stored.get("zset", ()):
                self.tell(b"ZADD", name.encode(), score.encode(), b64decode(member))

    def stand_at(self, now_ms: int) -> None:
        self.engine.clock_offset_ms = StandingStill(now_ms)

    def tell(self, *words: bytes) -> Any:
        (reply,) = self.engine._server.ask([scripts.pack(*words)], self.engine._server.deadline())
        return reply

    def migrate(self) -> tuple[int, int]:
        """Run all batches; return the numbers of moved and of remaining jobs."""
        bite = self.engine.migrate_jobs()
        moved, left = bite.moved, bite.left
        while bite.cursor is not None:
            bite = self.engine.migrate_jobs(bite.cursor)
            moved, left = moved + bite.moved, left + bite.left
        return moved, left

    def old_keys(self) -> set[str]:
        return {name for name in self.dump["keys"] if self.tell(b"EXISTS", name.encode())}


@pytest.fixture(params=[1, 2])
def old(own_server: RedisServer, open_redis: OpenRedis, request: pytest.FixtureRequest) -> Old:
    return Old(own_server, open_redis, request.param)


def everything(engine: RedisEngine) -> dict[str, JobRecord]:
    page = engine.find(Filter())
    found = [*page.records]
    while page.cursor is not None:
        page = engine.find(Filter(), page.cursor)
        found += page.records
    whole = engine.get([record.id for record in found])
    return {record.id: record for record in whole if record is not None}


def test_an_older_format_is_refused_until_it_is_migrated(old: Old) -> None:
    assert old.engine.is_used()
    with pytest.raises(EngineError, match=r"format 3; .* Run `windlass migrate`"):
        old.engine.stats()
    assert old.tell(b"EXISTS", keys.key("windlass", 0, "meta").encode()) == 0
    old.migrate()
    assert old.engine.stats().totals["enqueued"] == 30


def test_every_job_is_as_it_was(old: Old) -> None:
    before = {record.id: record for record in old.records}
    assert old.migrate() == (len(before) - 1, 1)
    assert old.engine.check() == []
    after = everything(old.engine)
    (running,) = [id for id, one in before.items() if one.session == LIVE]
    (lost,) = [
        id for id, one in before.items() if one.state is State.RUNNING and one.session != LIVE
    ]
    assert after.keys() == before.keys() - {running}
    assert after.pop(lost).state is State.READY
    assert after == {id: before[id] for id in after}


def test_jobs_start_in_the_same_order(old: Old) -> None:
    old.migrate()
    plan = Plan(queues=("mail",))
    claims = old.engine.turn("new", [], "00000001" + "cd" * 16, plan, 100).batch.claims
    expected = [
        record.priority
        for record in sorted(old.records, key=lambda one: (-one.priority, one.id))
        if record.state is State.READY and record.queue == "mail" and not record.suspect
    ]
    assert [claim.priority for claim in claims] == expected
    assert all(claim.payload for claim in claims)


def test_settings_keys_and_schedules_come_along(old: Old) -> None:
    old.migrate()
    settings = {record.queue: record for record in old.engine.queues()}
    assert settings["slow"].paused
    assert settings["bulk"].max_waiting == 500
    assert settings["old"].ageing_ms == 1_000
    assert old.engine.paused_tasks() == ["shop.paused"]
    (schedule,) = old.engine.list_schedules()
    assert (schedule.name, schedule.body) == ("nightly", b"body")
    task, key = "shop.mail", "order-1"
    again = NewJob(
        id=old.engine.new_id(task, "mail", key),
        task=task,
        queue="mail",
        payload=b"x",
        idempotency_key=key,
        fingerprint="f" * 32,
    )
    assert old.engine.put([again])[0].code is PutCode.EXISTING
    live = UniqueKey(key="u-live")
    met = NewJob(
        id=old.engine.new_id(task, "mail", None, "u-live"),
        task=task,
        queue="mail",
        payload=b"x",
        unique=live,
    )
    assert old.engine.put([met])[0].code is PutCode.EXISTING


def test_a_running_job_follows_when_its_worker_is_gone(old: Old) -> None:
    assert old.migrate()[1] == 1
    assert old.old_keys()
    old.stand_at(old.now_ms + 60_000)
    assert old.migrate() == (1, 0)
    assert old.old_keys() == set()
    assert old.engine.check() == []
    assert len(everything(old.engine)) == len(old.records)
    assert old.migrate() == (0, 0)


def test_a_second_run_keeps_later_changes(old: Old) -> None:
    old.migrate()
    old.engine.change_queue("slow", QueueChange(paused=False))
    before = everything(old.engine)
    assert old.migrate() == (0, 1)
    assert not {record.queue: record.paused for record in old.engine.queues()}.get("slow", False)
    assert everything(old.engine) == before
    assert old.engine.stats().totals["enqueued"] == 30


def test_a_job_that_an_old_producer_adds_later_is_moved_too(old: Old) -> None:
    old.migrate()
    name = f"{old_prefix('windlass', 0)}job".encode()
    fields = next(
        stored["hash"] for key, stored in old.dump["keys"].items() if key.encode() == name
    )
    ready = next(
        record for record in old.records if record.state is State.READY and record.queue == "bulk"
    )
    stored = {b64decode(field): b64decode(value) for field, value in fields.items()}
    if ready.id.encode() not in stored:
        pytest.skip("this job is in the other partition of the dump")
    later, packed = ready.id[:-1] + "z", stored[ready.id.encode()]
    row = (1 << 30).to_bytes(6)  # the sequence of the old format went on
    old.tell(b"HSET", name, later.encode(), packed[:52] + row + row + packed[64:])
    old.tell(b"HSET", name.replace(b"job", b"body"), later.encode(), ready.payload)
    assert old.migrate() == (1, 1)
    assert everything(old.engine)[later].payload == ready.payload
    assert old.engine.check() == []


def test_another_number_of_partitions_is_refused(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    Old(own_server, open_redis, 1)
    engine = open_redis(url_of(own_server, 2))
    with pytest.raises(EngineError, match="was set up with 1 partition"):
        engine.migrate_jobs()


def test_the_command_says_what_is_left(own_server: RedisServer, open_redis: OpenRedis) -> None:
    """With the clock of the server, which is far before that of the dump."""
    Old(own_server, open_redis, 1)
    ran = CliRunner().invoke(migrate, ["--url", url_of(own_server, 1)], standalone_mode=False)
    assert ran.return_value == 1
    assert "moved 28 jobs to format 4" in ran.output
    assert "2 jobs of the old version left" in ran.output


def test_a_job_that_both_versions_have_is_left_once(old: Old) -> None:
    """A producer of the old version repeated a put whose reply was lost."""
    name = f"{old_prefix('windlass', 0)}job".encode()
    ready = {record.id.encode() for record in old.records if record.state is State.READY}
    found = old.tell(b"HGETALL", name)
    id, stored = next(
        (id, bytes) for id, bytes in zip(found[::2], found[1::2], strict=True) if id in ready
    )
    old.migrate()
    before = everything(old.engine)
    old.tell(b"HSET", name, id, stored)
    assert old.migrate() == (0, 1)
    assert everything(old.engine) == before
    assert old.tell(b"HEXISTS", name, id) == 0


def test_an_old_producer_still_finds_its_idempotency_keys(old: Old) -> None:
    names = [f"{old_prefix('windlass', number)}keys" for number in range(old.partitions)]
    before = [old.tell(b"HLEN", name.encode()) for name in names]
    old.migrate()
    assert [old.tell(b"HLEN", name.encode()) for name in names] == before


def test_jobs_of_workers_that_were_cut_off_stay(old: Old) -> None:
    """The server was down for longer than a lease, and the workers have not called yet."""
    for number in range(old.partitions):
        meta = f"{old_prefix('windlass', number)}meta".encode()
        old.tell(b"HSET", meta, b"last_seen", b"%d" % (old.now_ms - 1_500))
    assert old.migrate()[1] == 2
