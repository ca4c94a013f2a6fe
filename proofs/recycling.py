"""Replace children constantly under load: no job is lost, runs twice or stays behind.

Two children of four slots, each replaced after its first jobs, while 4,000 jobs of 20 ms run. The
baseline is the same jobs without limits. On three engines.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.contract.variants import fresh_url
from tests.worker.yard import Worker, Yard, until
from windlass import State
from windlass.engine.redis.client.pool import MOST_CALLS as MOST_CONNECTIONS

JOBS: Final = 4_000
#: The least throughput, as a share of that without replacements.
SHARE: Final = 0.5


def prove(folder: Path) -> Iterator[str]:
    for engine in ("sqlite-file", "redis", "postgres"):
        took_s = {}
        for max_jobs in (None, 1):
            place = folder / f"{engine}-{max_jobs}"
            place.mkdir()
            with closing(Yard(place, "30s", "10s", 3, fresh_url(engine, place))) as yard:
                took_s[max_jobs], told = serve(yard, max_jobs)
            yield f"{engine}, {'replaced all the time' if max_jobs else 'never replaced'}: {told}"
        share = took_s[None] / took_s[1]
        yield f"{engine}: {share:.0%} of the throughput"
        assert share >= SHARE


def serve(yard: Yard, max_jobs: int | None) -> tuple[float, str]:
    worker = yard.start(processes=2, slots=4, max_jobs=max_jobs)
    until(lambda: len(worker.children()) == 2, "both children")
    yard.await_state(yard.plain("warm"), State.SUCCEEDED)
    most = descriptors(worker) + MOST_CONNECTIONS  # which are opened when calls meet
    bind = yard.script.plain.bind
    began_at = time.monotonic()
    yard.script.plain.enqueue_many(bind(f"job-{n}", ["sleep:0.02"]) for n in range(JOBS))
    yard.await_count(State.SUCCEEDED, JOBS + 1, seconds=300)
    took_s = time.monotonic() - began_at
    starts = yard.events("start")
    pids = {line.pid for line in starts}
    assert len(starts) == len({line.label for line in starts}) == JOBS + 1, "run twice, or never"
    assert max_jobs is None or len(pids) > 5, "too few children were replaced"
    until(lambda: descriptors(worker) <= most, f"{most} descriptors at most")
    assert worker.stop() == 0
    assert "handed back" not in worker.log()
    return took_s, f"{JOBS} jobs in {took_s:.1f} s by {len(pids)} children, each started once"


def descriptors(worker: Worker) -> int:
    """The number of open files of the supervisor."""
    return len(list(Path(f"/proc/{worker.pid}/fd").iterdir()))
