"""A dashboard to visit: an engine, `windlass serve`, a worker, and jobs in every state.

1. `Site` starts the server and the worker as processes of their own, and ends them.
2. `Stock` stores the jobs that all tests share. A test that changes a job enqueues its own.
3. `views` lists the addresses of all views.

The engine has access tokens, so every visitor logs in: as an admin, or as a viewer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import httpx

from tests.dashboard.browser.shop import RELEASE, SERVED, add_tasks
from tests.http.server_process import ServerProcess
from tests.worker.yard import PROJECT, until
from windlass import Job, State, Windlass
from windlass.access_tokens import Role

APP: Final = "tests.dashboard.browser.shop:app"
#: Longer than anything here takes; reached only if something is broken.
DEADLINE_S: Final = 20.0


class Site:
    """One server and its worker. `app` acts on the same engine."""

    def __init__(self, folder: Path, url: str = "", *, options: Sequence[str] = ()) -> None:
        self.folder = folder
        self.engine_url = url or f"sqlite:///{folder}/jobs.db?durability=normal"
        self.app = Windlass(self.engine_url, release=RELEASE)
        self.shop = add_tasks(self.app)
        self.tokens = {
            role: self.app.access_tokens.create(name=name, role=role)[1]
            for name, role in (("ann", Role.ADMIN), ("vic", Role.VIEWER))
        }
        self._worker: subprocess.Popen[bytes] | None = None
        self._options = ("--url", self.engine_url, *options)
        self.server = ServerProcess(APP, folder / "serve.log", *self._options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return self.server.url

    def start_worker(self) -> None:
        command = [sys.executable, "-m", "windlass", "worker", APP, "--url", self.engine_url]
        command += ["-q", ",".join(SERVED), "-p", "1", "-c", "8"]
        with (self.folder / "worker.log").open("wb") as log:
            self._worker = subprocess.Popen(
                command, cwd=PROJECT, env=os.environ, stdout=log, stderr=log, start_new_session=True
            )

    def call(self, method: str, path: str, body: object = None) -> Any:
        """A request to the API, as the admin."""
        headers = {"Authorization": f"Bearer {self.tokens[Role.ADMIN]}"}
        answer = httpx.request(
            method, self.url + path, json=body, headers=headers, timeout=DEADLINE_S
        )
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def await_state(self, job: Job[Any], state: State) -> None:
        until(lambda: job.info().state is state, f"{state} of {job}", DEADLINE_S)

    def stop_worker(self) -> None:
        if self._worker is not None:
            self._worker.kill()  # its children end with it
            self._worker.wait()
            self._worker = None

    def close(self) -> None:
        self.stop_worker()
        with suppress(subprocess.TimeoutExpired):
            self.server.stop()
        self.server.kill()
        self.app.close()


class Stock:
    """Jobs that all tests may look at, and that none changes."""

    def __init__(self, site: Site) -> None:
        shop = site.shop
        shop.welcome.enqueue_many((name,) for name in ("Ada", "Grace", "Edsger", "Barbara") * 8)
        self.charged = [
            shop.charge.using(headers={"request-id": f"r-{order}"}).enqueue(order, -order)
            for order in range(1, 13)
        ]
        self.shipped = [shop.ship.enqueue(order) for order in range(1, 6)]
        self.running = shop.export.enqueue(1_000_000)
        shop.letter.enqueue_many((f"customer {number}",) for number in range(70))
        shop.welcome.using(run_after="2h").enqueue("Alan")
        self.succeeded = shop.welcome.enqueue("Margaret")
        for job in (*self.charged, *self.shipped):
            site.await_state(job, State.DEAD)
        site.await_state(self.running, State.RUNNING)
        site.await_state(self.succeeded, State.SUCCEEDED)
        self.retry_shipped(site)

    def retry_shipped(self, site: Site) -> None:
        """Retry a dead group by an operation. Its jobs fail again."""
        answer = site.call("POST", "/v1/dead/retry", {"filter": {"task": "shop.ship"}})
        self.operation: str = answer["id"]
        path = f"/v1/operations/{self.operation}"
        until(lambda: site.call("GET", path)["state"] == "finished", "the retry", DEADLINE_S)
        for job in self.shipped:
            site.await_state(job, State.DEAD)


def views(stock: Stock) -> dict[str, str]:
    """Every view by its address, with its title."""
    return {
        "": "Overview",
        "queues": "Queues",
        "jobs": "Jobs",
        f"jobs/{stock.shipped[0].id}": "shop.ship",
        f"jobs/{stock.running.id}": "shop.export",
        f"jobs/{stock.succeeded.id}": "shop.welcome",
        "dead": "Dead jobs",
        "schedules": "Schedules",
        "workers": "Workers",
        "operations": "Operations",
        "audit": "Audit trail",
    }
