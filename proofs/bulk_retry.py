"""`serve` is killed twice in the middle of a bulk retry of 50,000 dead jobs: each is retried once.

1. 50,000 jobs die.
2. A request to the HTTP API starts a retry of all of them. A worker in this process runs each
   retried job at once and lets it die again, so that a job that is retried twice runs twice.
3. The server is killed with SIGKILL after a third of the jobs, and after two thirds. Each time
   another one starts, and continues the operation after the lease of the killed one.
4. In the end the operation has done 50,000 jobs, and each job has run exactly once more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx

from tests.contract.variants import fresh_url
from tests.http.server_process import ServerProcess
from windlass import FailureText, State, Windlass
from windlass.core.states import Reason
from windlass.engine.contract import Buried, Plan
from windlass.operations.runner import LEASE_S
from windlass.testing.contract.world import claim_jobs

JOBS: Final = 50_000
KILLS: Final = (JOBS // 3, JOBS * 2 // 3)
#: The longest time without progress: a takeover, on a busy machine.
PATIENCE_S: Final = 4 * LEASE_S

_ERROR: Final = FailureText.of(ValueError("no")).pack()
_nonces = count(1)


def prove(folder: Path) -> Iterator[str]:
    for engine in ("sqlite-file", "redis", "postgres"):
        place = folder / engine
        place.mkdir()
        url = fresh_url(engine, place)
        with Windlass(url) as app:
            yield f"{engine}: {_prove(app, url, place)}"


def _prove(app: Windlass, url: str, folder: Path) -> str:
    app.task(name="charge")(_charge).enqueue_many((number,) for number in range(JOBS))
    assert _run_all(app).total() == JOBS
    begin_s = time.monotonic()
    runs, operation, kills = _retry(app, url, folder)
    taken_s = time.monotonic() - begin_s
    assert (operation["state"], operation["total"]) == ("finished", JOBS), operation
    assert (operation["done"], operation["refused"], operation["failed"]) == (JOBS, 0, 0), operation
    assert len(runs) == JOBS, f"{JOBS - len(runs)} jobs were not retried"
    assert set(runs.values()) == {1}, f"{runs.total() - JOBS} runs too many"
    assert app.stats().jobs == {State.DEAD: JOBS}
    assert app.engine.check() == []
    return (
        f"{operation['done']} of {operation['total']} done, {len(runs)} jobs ran once more, none "
        f"twice; the server was killed {kills} times, and all took {taken_s:.0f} s"
    )


def _retry(app: Windlass, url: str, folder: Path) -> tuple[Counter[str], dict[str, Any], int]:
    """Start the operation, kill servers on its way, and run its jobs."""
    start = _starter(url, folder)
    server = start()
    runs: Counter[str] = Counter()
    kills = list(KILLS)
    try:
        body = {"filter": {"everything": True}, "stop_after": 0}
        answer = httpx.post(f"{server.url}/v1/dead/retry", json=body, timeout=30)
        assert answer.status_code == 202, answer.text
        path = f"/v1/operations/{answer.json()['id']}"
        seen_s = time.monotonic()
        while True:
            before = runs.total()
            runs += _run_ready(app)
            if runs.total() > before:
                seen_s = time.monotonic()
            elif (found := httpx.get(server.url + path).json())["state"] != "running":
                return runs + _run_all(app), found, len(KILLS) - len(kills)
            assert time.monotonic() < seen_s + PATIENCE_S, f"no progress after {before} jobs"
            if kills and runs.total() >= kills[0]:
                server.kill()
                server, kills = start(), kills[1:]
    finally:
        server.kill()


def _starter(url: str, folder: Path) -> Callable[[], ServerProcess]:
    numbers = count(1)

    def start() -> ServerProcess:
        log = folder / f"serve-{next(numbers)}.log"
        return ServerProcess("tests.http.shop_app:app", log, environment={"WINDLASS_URL": url})

    return start


def _charge(number: int) -> None:
    """The task, which only this process runs."""


def _run_all(app: Windlass) -> Counter[str]:
    """Run all jobs that are ready."""
    runs: Counter[str] = Counter()
    while some := _run_ready(app):
        runs += some
    return runs


def _run_ready(app: Windlass) -> Counter[str]:
    """Run some jobs and let them die. Return how often each ran."""
    claims = claim_jobs(app.engine, "proof", f"{next(_nonces):040x}", Plan(), 200).claims
    app.engine.finish(
        [
            Buried(id=one.id, token=one.token, reason=Reason.EXHAUSTED, error=_ERROR)
            for one in claims
        ]
    )
    return Counter(one.id for one in claims)
