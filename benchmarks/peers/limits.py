"""The limit of an engine: a bare loop that makes the same state changes as windlass.

The commands of windlass are recorded in one run: the bytes for Redis, or the statements for SQLite.
The loop then sends the same commands to an empty store, on a raw socket or a plain cursor. The
share of this limit that windlass reaches shows the cost of its own code.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import takewhile
from typing import Final

from benchmarks.peers.deployment import Deployment, deployed
from benchmarks.peers.environments import ROOT
from benchmarks.peers.redis_recorder import (
    Exchange,
    RawConnections,
    RedisRecorder,
    command_name,
)
from benchmarks.peers.stores import RedisStore
from benchmarks.peers.subjects import InstalledSystem, Taken
from windlass import State, Windlass

_PATIENCE_S: Final = 30.0


def limit(subject: InstalledSystem) -> Taken:
    if subject.system.store == "redis":
        return {**_redis_enqueue(subject), **_redis_drain(subject)}
    return _sqlite(subject)


def _sqlite(subject: InstalledSystem) -> Taken:
    """In a process of its own, because the recorder hooks into every connection."""
    durability = "normal" if subject.system.store == "sqlite-normal" else "full"
    sizes = [str(subject.sizes.single), str(subject.sizes.bulk)]
    command = [sys.executable, "-m", "benchmarks.peers.sqlite_recorder", durability, *sizes]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return dict(json.loads(done.stdout))


def _redis_enqueue(subject: InstalledSystem) -> Taken:
    single, bulk = subject.sizes.single, subject.sizes.bulk
    with (
        deployed(subject.system, subject.installation) as deployment,
        RedisRecorder(_port(deployment)) as recorder,
        deployment.producer(recorder.url) as producer,
    ):
        producer.call("single", "noop")
        first = len(recorder.exchanges)
        producer.call("single", "noop", single)
        second = len(recorder.exchanges)
        producer.call("bulk", "noop", bulk)
        exchanges = recorder.exchanges
    with deployed(subject.system, subject.installation) as deployment:
        raw = RawConnections(_port(deployment), exchanges)
        raw.prepare(exchanges[:first])
        rates = {
            "limit-enqueue": single / raw.replay(exchanges[first:second]),
            "limit-bulk": bulk / raw.replay(exchanges[second:]),
        }
        raw.close()
        _check(deployment, State.READY, 1 + single + bulk)
    return rates


def _redis_drain(subject: InstalledSystem) -> Taken:
    """Record the calls of a worker's child: each finishes some jobs and claims others."""
    count = subject.sizes.drain(subject.system)
    with (
        deployed(subject.system, subject.installation) as deployment,
        RedisRecorder(_port(deployment)) as recorder,
    ):
        deployment.url = recorder.url
        deployment.fill("noop", count)
        filled = len(recorder.exchanges)
        with deployment.workers() as workers:
            deployment.await_marks(count, workers)
            _await_ends(deployment, count)
        exchanges = recorder.exchanges
    fetches = _longest_connection(exchanges[filled:])
    before = _set_up(fetches)
    with deployed(subject.system, subject.installation) as deployment:
        raw = RawConnections(_port(deployment), exchanges)
        raw.prepare(exchanges[:filled] + fetches[:before])
        seconds = raw.replay(fetches[before:])
        raw.close()
        _check(deployment, State.SUCCEEDED, count)
    return {"limit-drain": count / seconds}


def _longest_connection(exchanges: list[Exchange]) -> list[Exchange]:
    """The connection that claims and finishes: it has the most bytes."""
    sizes: dict[int, int] = {}
    for one in exchanges:
        sizes[one.connection] = sizes.get(one.connection, 0) + len(one.request)
    busiest = max(sizes, key=lambda number: sizes[number])
    return [one for one in exchanges if one.connection == busiest]


def _set_up(exchanges: list[Exchange]) -> int:
    """How many exchanges there are until the last script was loaded."""
    late = list(takewhile(lambda one: command_name(one.request) != "EVAL", reversed(exchanges)))
    return len(exchanges) - len(late)


def _port(deployment: Deployment) -> int:
    assert isinstance(deployment.store, RedisStore)
    return deployment.store.port


def _await_ends(deployment: Deployment, count: int) -> None:
    """A task writes its mark before its outcome is stored."""
    deadline = time.monotonic() + _PATIENCE_S
    with Windlass(deployment.store.url) as app:
        while jobs_in(app, State.SUCCEEDED) < count and time.monotonic() < deadline:
            time.sleep(0.01)


def _check(deployment: Deployment, state: State, count: int) -> None:
    """A loop that changed less than windlass would not be its limit."""
    with Windlass(deployment.store.url) as app:
        check_jobs(app, state, count)


def check_jobs(app: Windlass, state: State, count: int) -> None:
    found = jobs_in(app, state)
    if found != count:
        raise RuntimeError(f"the bare loop left {found} jobs {state.value}, expected {count}")


def jobs_in(app: Windlass, state: State) -> int:
    return app.stats().jobs.get(state, 0)
