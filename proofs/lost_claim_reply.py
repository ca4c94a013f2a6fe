"""Claims whose reply is lost: their jobs run within seconds, once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from proofs.everywhere import on_every_engine
from tests.worker.yard import Yard
from windlass import State

JOBS: Final = 20
#: How many replies `swallowing` loses. Not declared there: its import changes the engines.
SWALLOWED: Final = 3


@on_every_engine
def prove(folder: Path, url: str) -> Iterator[str]:
    with closing(Yard(folder, "30s", "5s", 3, url)) as yard:
        for number in range(JOBS):
            yard.plain(f"job-{number}", "sleep:0.02")
        worker = yard.start(app="proofs.swallowing:app", slots=4)
        yard.await_start("job-0")
        started = time.monotonic()
        yard.await_count(State.SUCCEEDED, JOBS, seconds=15)
        elapsed = time.monotonic() - started
        worker.await_log("the reply was swallowed on purpose")
        starts = len(yard.events("start"))
        yield f"{SWALLOWED} replies swallowed, {JOBS} jobs, {starts} starts, {elapsed:.2f} s"
        assert starts == JOBS
