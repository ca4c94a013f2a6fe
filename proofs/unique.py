"""64 callers use one unique key while workers finish its jobs: there are never two live jobs, and a
call returns an earlier job only while that job is live.

4 processes with 16 threads each make 100,000 calls; 2 workers run the jobs, and a fifth of the
attempts fail. The proof compares the times of callers, tasks and records.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proofs.everywhere import on_every_engine
from tests.worker.apps import contest

PROCESSES: Final = 4
THREADS: Final = 16
TRIES: Final = 1_563  # of each thread: 100,032 in all


def _prove(folder: Path, url: str) -> Iterator[str]:
    found = contest.run(folder, url, processes=PROCESSES, threads=THREADS, tries=TRIES)
    yield (
        f"{found.tries} tries of {PROCESSES * THREADS} callers in {found.seconds:.1f} s: "
        f"{found.jobs} jobs, {found.starts} starts"
    )
    yield (
        f"two alive {found.two_alive}, two running {found.two_running}, answers with a job that "
        f"did not live {found.wrong_answers}, disagreements of the check {found.disagreements}"
    )
    assert found.tries >= 100_000
    assert found.jobs >= 100
    assert found[-4:] == (0, 0, 0, 0)


prove = on_every_engine(_prove)
