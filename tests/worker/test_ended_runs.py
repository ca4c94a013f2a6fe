"""A worker keeps nothing of a run that has ended."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from tests.contract.variants import fresh_url
from windlass import Context, Windlass


@pytest.mark.parametrize("engine", ["sqlite-file", "redis", "postgres"])
def test_a_worker_forgets_its_runs(engine: str, tmp_path: Path) -> None:
    """A run and its context may lead to each other: then the collector of cycles must see both."""
    number, before = 50, count_contexts()
    with Windlass(fresh_url(engine, tmp_path)) as app:
        task = app.task(name="nothing")(nothing)
        with app.worker():
            for job in task.enqueue_many(() for _ in range(number)):
                job.result(timeout=20)
    assert count_contexts() - before < number / 2


def nothing() -> None:
    """A task."""


def count_contexts() -> int:
    gc.collect()
    return sum(type(one) is Context for one in gc.get_objects())
