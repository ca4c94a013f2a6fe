"""A job with a free slot starts at once, even if other children are idle; tiers stay strict; and
idle children are cheap."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from proofs.everywhere import on_every_engine
from tests.contract.variants import fresh_url
from tests.redis_server import RedisServer
from tests.worker.lateness import PROMPT_MS, SETTINGS, all_ready, measure, overtaken
from tests.worker.yard import Yard, until

STARTS: Final = 60
MOST_LATE: Final = 1
TRIES: Final = 50
IDLE_CHILDREN: Final = 8
IDLE_S: Final = 20.0
#: A worker renews its wait once a second, in addition to heartbeats, maintenance and a poll
#: every 5 s.
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
    server = RedisServer("--appendfsync", "everysec")
    try:
        for partitions in (1, 4):
            own = folder / str(partitions)
            own.mkdir()
            with closing(Yard(own, "30s", "5s", 3, server.url(partitions=partitions))) as yard:
                yard.start(processes=IDLE_CHILDREN)
                until(lambda: all_ready(yard), "a worker that is ready", 60)  # at once
                time.sleep(2.0)  # until all children wait
                before = _calls(server)
                time.sleep(IDLE_S)
                rate = (_calls(server) - before) / IDLE_S
                connections = server.tell("CLIENT", "LIST", "TYPE", "normal").count(b"cmd=")
                yield (
                    f"{IDLE_CHILDREN} idle children, {partitions} partitions: {rate:.1f} calls/s, "
                    f"{connections} connections besides that of the waiter"
                )
                assert rate <= MOST_CALLS_S * partitions
    finally:
        server.end()


def _calls(server: RedisServer) -> int:
    """The number of script calls."""
    stats = server.tell("INFO", "commandstats").decode()
    found = re.search(r"cmdstat_evalsha:calls=(\d+)", stats)
    return int(found[1]) if found else 0
