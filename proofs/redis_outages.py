"""A Redis server dies, drops its clients, freezes or rejects writes while workers run: they
continue within five seconds, no job is lost, and every extra start has a cause."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final

from proofs.outage_load import (
    ENQUEUE_S,
    TOLERANCE_S,
    Scene,
    fail_to_enqueue,
    open_scene,
    stand_still,
    told,
)
from tests.proxy import Proxy
from tests.redis_server import RedisServer
from windlass import State, Windlass

KILLS: Final = 20
DOWN_S: Final = 0.7
CLIENT_KILLS: Final = 100
FROZEN_S: Final = 60.0
READONLY_S: Final = 20.0
LONG_JOB_S: Final = 40.0
LONG_OUTAGE_S: Final = 20.0

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


# ---------------------------------------------------------------------------------- a long job


def kill(it: RedisScene) -> None:
    it.server.kill()
    time.sleep(LONG_OUTAGE_S)
    it.server.start()


def vanish(it: RedisScene) -> None:
    it.proxy.vanish()
    time.sleep(LONG_OUTAGE_S)
    it.proxy.heal()


def freeze(it: RedisScene) -> None:
    it.proxy.freeze()
    time.sleep(LONG_OUTAGE_S)
    it.proxy.heal()


def prove_long_job(folder: Path) -> Iterator[str]:
    """One job of 40 s, an outage of 20 s in it, and a second worker that could take it over."""
    outages = {"killed": kill, "frozen": freeze, "vanished": vanish}
    with ThreadPoolExecutor() as pool:
        runs = {name: pool.submit(span, folder / name, outage) for name, outage in outages.items()}
        for name, run in runs.items():
            yield f"server {name} for {LONG_OUTAGE_S:g} s: {run.result()}"


def span(folder: Path, outage: Callable[[RedisScene], None]) -> str:
    folder.mkdir()
    with scene(folder, is_proxied=True) as it:
        it.start_workers(2, slots=1)
        id = it.enqueue("long", f"sleep:{LONG_JOB_S}")
        it.yard.await_start("long")
        time.sleep(5.0)  # into the middle of the job
        outage(it)
        resumed_s = it.resume()
        it.yard.await_state(id, State.SUCCEEDED)
        starts = len(it.yard.events("start", "long"))
        *_, account = it.finish()
        assert starts == 1, f"{starts} starts"
        return f"a job of {LONG_JOB_S:g} s ran once; {told([resumed_s])}; {account}"


# ------------------------------------------------------------------------------------- enqueues


def prove_enqueue(_folder: Path) -> Iterator[str]:
    """With the default settings of an app."""
    outages: dict[str, Callable[[Proxy], None]] = {
        "refused": Proxy.refuse,
        "frozen": Proxy.freeze,
        "vanished": Proxy.vanish,
    }
    server = RedisServer()
    try:
        with ExitStack() as stack, ThreadPoolExecutor() as pool:
            runs = {}
            for name, outage in outages.items():
                proxy = stack.enter_context(Proxy(server.port))
                app = stack.enter_context(Windlass(server.url(port=proxy.port)))
                app.engine.stats()
                outage(proxy)
                runs[name] = pool.submit(fail_to_enqueue, app)
            for name, run in runs.items():
                seconds, message = run.result()
                yield f"{name}: failed after {seconds:.2f} s: {message}"
                assert abs(seconds - ENQUEUE_S) < TOLERANCE_S
    finally:
        server.end()
