"""Each alert of an incident fires once and clears once, although every process that evaluates the
rules is killed: a worker of three, then all workers, then `windlass serve`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from proofs.everywhere import on_every_engine
from tests.alerts.helpers import Receiver, receiving
from tests.alerts.incident import APP, KINDS, Scene, break_everything, repair_everything
from tests.http.server_process import ServerProcess
from tests.worker.yard import Worker, until
from windlass.alerts.watch import TAKEOVER_S

#: How long a holder may take to notice the death of another one, and to look.
DEADLINE_S = TAKEOVER_S + 30


@on_every_engine
def prove(folder: Path, url: str) -> Iterator[str]:
    with receiving() as receiver:
        scene = Scene(folder, url, receiver)
        try:
            yield from _prove(scene, receiver)
        finally:
            scene.close()


def _prove(scene: Scene, receiver: Receiver) -> Iterator[str]:
    workers = [scene.yard.start(app=APP, environment=scene.environment) for _ in range(3)]
    first = _holder(scene, workers)
    first.destroy()
    died = time.monotonic()
    second = _holder(scene, [worker for worker in workers if worker is not first])
    yield f"the worker with the rules was killed; another took over in {_since(died)}"
    for worker in workers:
        worker.destroy()
    died = time.monotonic()
    ids = break_everything(scene.app)
    server = scene.serve()
    receiver.await_bodies(len(KINDS), DEADLINE_S)
    assert second.process.poll() is not None
    yield f"all workers were killed; serve fired {len(receiver.bodies)} alerts in {_since(died)}"
    until(scene.is_delivered, "the end of the deliveries")
    server.kill()
    died = time.monotonic()
    other = scene.serve()
    until(lambda: scene.holders() == {other.pid}, "the next holder", DEADLINE_S)
    yield f"serve was killed; another took over in {_since(died)}, and fired nothing again"
    assert len(receiver.bodies) == len(KINDS)
    yield _prove_end(scene, receiver, other, ids)


def _prove_end(scene: Scene, receiver: Receiver, server: ServerProcess, ids: list[str]) -> str:
    repair_everything(scene.app, ids)
    repaired = time.monotonic()
    receiver.await_bodies(2 * len(KINDS), DEADLINE_S)
    taken = _since(repaired)
    until(scene.is_delivered, "the end of the deliveries")
    assert server.stop() == 0
    expected = Counter(f"{kind} {state}" for kind in KINDS for state in ("firing", "cleared"))
    assert Counter(receiver.states()) == Counter(scene.hooks()) == expected
    assert len({body["id"] for body in receiver.bodies}) == len(KINDS)
    assert scene.app.engine.check() == []
    return f"{len(KINDS)} alerts cleared in {taken}; each fired once and cleared once"


def _holder(scene: Scene, workers: list[Worker]) -> Worker:
    """Wait for the worker that holds all rules, and return it."""
    pids = {worker.pid: worker for worker in workers}
    until(lambda: len(scene.holders()) == 1 and scene.holders() <= set(pids), "it", DEADLINE_S)
    return pids[scene.holders().pop()]


def _since(begin: float) -> str:
    return f"{time.monotonic() - begin:.0f} s"
