"""Real callers and real workers on one unique key; `proofs` has a larger contest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.variants import fresh_url
from tests.worker.apps import contest


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("sqlite-file", marks=pytest.mark.slow),
        "redis-4",
        pytest.param("postgres", marks=pytest.mark.slow),
    ],
)
def test_a_unique_key_is_never_shared(engine: str, tmp_path: Path) -> None:
    url = fresh_url(engine, tmp_path)
    verdict = contest.run(tmp_path, url, processes=2, threads=8, tries=250)
    assert verdict.tries == 4_000
    assert verdict.jobs > 5
    assert verdict.starts >= verdict.jobs
    assert verdict[-4:] == (0, 0, 0, 0)
