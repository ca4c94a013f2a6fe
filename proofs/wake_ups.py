"""A job with a free slot starts at once, even if other children are idle; tiers stay strict; and
idle children are cheap."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, Protocol

from proofs.everywhere import on_every_engine
from tests.contract.variants import fresh_url
from tests.postgres_server import COUNT_LAG_S, OWNER, PostgresServer
from tests.redis_server import RedisServer
from tests.worker.lateness import PROMPT_MS, SETTINGS, all_ready, measure, overtaken
from tests.worker.yard import Yard, until
from windlass.engine.postgres.wakeup import POLL_FLOOR_S

STARTS: Final = 60
MOST_LATE: Final = 1
TRIES: Final = 50
IDLE_CHILDREN: Final = 8
IDLE_S: Final = 20.0
#: A worker renews its wait once a second, in addition to heartbeats, maintenance and a poll
#: every 5 s. On PostgreSQL it polls every `POLL_FLOOR_S`.
MOST_CALLS_S: Final = 3.0


@on_every_engine
def prove_prompt(folder: Path, _url: str) -> Iterator[str]:
    """At most one of 60 starts is later than 50 ms in any of these settings."""
    for number, name in enumerate(SETTINGS):
        own = folder / str(number)
        own.mkdir()
        with closing(Yard(own, "30s", "5s", 3, fresh_url(folder.name, own))) as yard:
            late_ms = measure(yard, name, STARTS)
        late = sum(one > PROMPT_MS for one in late_ms)
        yield (
            f"next to {name}: {late} of {STARTS} starts later than {PROMPT_MS:.0f} ms, "
            f"p50 {statistics.median(late_ms):.1f} ms, longest {max(late_ms):.1f} ms"
        )
        assert late <= MOST_LATE


@on_every_engine
def prove_tiers(folder: Path, url: str) -> Iterator[str]:
    """No job of a lower tier is claimed before earlier jobs of a higher tier."""
    with closing(Yard(folder, "30s", "5s", 3, url)) as yard:
        number = overtaken(yard, TRIES)
        yield f"overtaken by a lower tier in {number} of {TRIES} tries"
        assert number == 0


def prove_idle(folder: Path) -> Iterator[str]:
    """An idle worker with eight children makes a few calls a second."""
    for partitions in (1, 4):
        name = f"redis, {partitions} partitions"
        most = MOST_CALLS_S * partitions
        with closing(_RedisMeter(partitions)) as meter:
            yield _measure_idle(folder / f"redis-{partitions}", name, meter, most)
    with closing(_PostgresMeter()) as meter:
        most = MOST_CALLS_S + 1 / POLL_FLOOR_S
        yield _measure_idle(folder / "postgres", "postgres", meter, most)


class _Meter(Protocol):
    """A server that counts its calls and connections."""

    url: str
    lag_s: float  # until a call is counted, with some for a busy machine

    def calls(self) -> int: ...

    def connections(self) -> str: ...


def _measure_idle(folder: Path, name: str, meter: _Meter, most: float) -> str:
    folder.mkdir()
    with closing(Yard(folder, "30s", "5s", 3, meter.url)) as yard:
        yard.start(processes=IDLE_CHILDREN)
        until(lambda: all_ready(yard), "a worker that is ready", 60)  # at once
        time.sleep(meter.lag_s)  # until all children wait, and what they did before is counted
        before = meter.calls()
        time.sleep(IDLE_S)
        rate = (meter.calls() - before) / IDLE_S
        assert rate <= most, f"{name}: {rate:.1f} calls/s"
        return f"{name}: {IDLE_CHILDREN} idle children, {rate:.1f} calls/s, {meter.connections()}"


class _RedisMeter:
    lag_s = 2.0

    def __init__(self, partitions: int) -> None:
        self._server = RedisServer("--appendfsync", "everysec")
        self.url = self._server.url(partitions=partitions)

    def calls(self) -> int:
        """The number of script calls."""
        stats = self._server.tell("INFO", "commandstats").decode()
        found = re.search(r"cmdstat_evalsha:calls=(\d+)", stats)
        return int(found[1]) if found else 0

    def connections(self) -> str:
        number = self._server.tell("CLIENT", "LIST", "TYPE", "normal").count(b"cmd=")
        return f"{number} connections besides that of the waiter"

    def close(self) -> None:
        self._server.end()


class _PostgresMeter:
    lag_s = COUNT_LAG_S

    def __init__(self) -> None:
        self._server = PostgresServer()
        self._database = self._server.new_database()
        self.url = self._server.url(self._database, user=OWNER)

    def calls(self) -> int:
        return self._server.count_transactions(self._database)

    def connections(self) -> str:
        return f"{self._server.count_connections(self._database)} connections"

    def close(self) -> None:
        self._server.end()
