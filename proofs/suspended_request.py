"""A whole worker is suspended in the middle of a report to PostgreSQL. Another worker ends the
request that the server waits for, and runs the jobs within half a minute and a lease; the late
results are rejected."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.contract.variants import fresh_url
from tests.postgres_server import shared_server
from tests.proxy import Proxy, Side, Then
from tests.worker.yard import Yard, until
from windlass import State

LEASE_S: Final = 3.0
#: The jobs run again after this time at most: the longest time without progress, two looks, and
#: the recovery of expired sessions.
MOST_S: Final = 45.0
JOBS: Final = 4
RESULT_BYTES: Final = 900_000
#: The worker is suspended when this part of its first report has passed.
PART_BYTES: Final = 400_000
_WAITING: Final = """
SELECT state, wait_event FROM pg_stat_activity
WHERE datname = current_database() AND state = 'active' AND wait_event_type = 'Client'
"""


def prove(folder: Path) -> Iterator[str]:
    url = fresh_url("postgres", folder)
    server = shared_server()
    with (
        closing(Yard(folder, f"{LEASE_S:g}s", "5s", 3, url)) as yard,
        Proxy(server.port) as proxy,
        server.connect(urlsplit(url).path[1:]) as connection,
    ):
        through_proxy = url.replace(f":{server.port}/", f":{proxy.port}/")
        app = "tests.worker.apps.bulky:app"
        suspended = yard.start(app=app, slots=JOBS, url=through_proxy)
        bulky = yard.app.task_named("bulky")
        jobs = [bulky.enqueue(f"job-{number}", RESULT_BYTES) for number in range(JOBS)]
        until(lambda: len(yard.events("start")) == JOBS, "all jobs run")
        proxy.cut(Side.REQUESTS, PART_BYTES, Then.FREEZE)
        (folder / "gate").touch()
        until(lambda: proxy.cuts, "the first part of the report")
        os.killpg(suspended.pid, signal.SIGSTOP)
        began = time.monotonic()
        waits = until(lambda: connection.execute(_WAITING).fetchall(), "the server waits")
        yield f"suspended in the middle of a report; the server sees it as {', '.join(waits[0])}"
        other = yard.start(app=app, slots=JOBS)
        line = "ended a call of a suspended process"
        until(lambda: line in other.log(), f"{line!r} in the log:\n{other.log()}", MOST_S)
        yield f"the call was ended {time.monotonic() - began:.1f} s after the suspension"
        yard.await_count(State.SUCCEEDED, JOBS, MOST_S)
        yield f"all {JOBS} jobs had succeeded after {time.monotonic() - began:.1f} s"
        assert time.monotonic() - began < MOST_S
        before = [yard.record(job.id) for job in jobs]
        proxy.heal()
        os.killpg(suspended.pid, signal.SIGCONT)
        totals = yard.app.engine.stats
        until(lambda: totals().totals.get("stale") == JOBS, f"{JOBS} stale results")
        assert [yard.record(job.id) for job in jobs] == before, "a late result changed a record"
        assert len(yard.events("start")) == 2 * JOBS
        yield f"each job started twice, and {JOBS} late results were rejected"
