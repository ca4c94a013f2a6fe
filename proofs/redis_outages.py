"""A Redis server dies, drops its clients, freezes or rejects writes while workers run: they
continue within five seconds, no job is lost, and every extra start has a cause."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

from proofs import outage_load
from proofs.outage_load import Scene, open_scene, stand_still, told
from tests.redis_server import RedisServer

KILLS: Final = 20
DOWN_S: Final = 0.7
CLIENT_KILLS: Final = 100
FROZEN_S: Final = 60.0
READONLY_S: Final = 20.0

RedisScene = Scene[RedisServer]


def scene(
    folder: Path, partitions: int = 1, *, is_proxied: bool = False
) -> AbstractContextManager[RedisScene]:
    server = RedisServer("--appendfsync", "always")
    url = server.url(partitions=partitions)
    return open_scene(folder, server, url, is_proxied=is_proxied)


def prove_killed(folder: Path) -> Iterator[str]:
    """SIGKILL and a restart, again and again."""
    with scene(folder) as it:
        it.start_workers(2, processes=1, slots=4)
        it.load()
        resumed = []
        for _ in range(KILLS):
            it.server.kill()
            time.sleep(DOWN_S)  # how long it is away is part of what is shown
            it.server.start()
            resumed.append(it.resume())
            it.work(50)
        yield f"killed and restarted {KILLS} times, away {DOWN_S:g} s each: {told(resumed)}"
        yield from it.finish()


def prove_client_kill(folder: Path) -> Iterator[str]:
    """The server closes all connections, including those that wait for wake-ups."""
    with scene(folder, partitions=4) as it:
        it.start_workers(2, processes=1, slots=4)
        it.load()
        resumed = []
        for _ in range(CLIENT_KILLS):
            for kind in ("normal", "pubsub"):
                it.server.tell("CLIENT", "KILL", "TYPE", kind)
            resumed.append(it.resume())
            it.work(10)
        yield f"all clients killed {CLIENT_KILLS} times: {told(resumed)}"
        yield from it.finish()


def prove_frozen(folder: Path) -> Iterator[str]:
    """Connections stay open and new ones are accepted, but no data passes."""
    with scene(folder, is_proxied=True) as it:
        it.start_workers(2, processes=1, slots=4)
        it.load()
        it.proxy.freeze()
        stand_still(it, FROZEN_S)
        it.proxy.heal()
        yield f"frozen for {FROZEN_S:g} s, lease 5 s: {told([it.resume()])}"
        yield from it.finish()


def prove_readonly(folder: Path) -> Iterator[str]:
    """As in a failover: the server becomes a replica, and a primary again."""
    with scene(folder) as it:
        it.start_workers(2, processes=1, slots=4)
        it.load()
        it.server.tell("REPLICAOF", "127.0.0.1", "1")
        stand_still(it, READONLY_S)
        it.server.tell("REPLICAOF", "NO", "ONE")
        yield f"read only for {READONLY_S:g} s: {told([it.resume()])}"
        yield from it.finish()


def prove_long_job(folder: Path) -> Iterator[str]:
    yield from outage_load.prove_long_job(folder, partial(scene, is_proxied=True))


def prove_enqueue(_folder: Path) -> Iterator[str]:
    server = RedisServer()
    try:
        yield from outage_load.prove_enqueue(server, server.url())
    finally:
        server.end()
