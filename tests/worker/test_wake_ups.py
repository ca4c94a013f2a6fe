"""A job with a free slot starts at once, with any other children idle; tiers stay strict."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.variants import fresh_url
from tests.soon import is_once
from tests.worker.lateness import PROMPT_MS, SETTINGS, measure, overtaken
from tests.worker.yard import Yard


def open_yard(folder: Path, engine: str) -> Yard:
    return Yard(folder, "30s", "5s", 3, fresh_url(engine, folder))


#: The proof `wake-ups` has them all. A worker with twelve children takes long to start.
ANOTHER_QUEUE, OWN_PROCESS, MANY_OTHERS, MANY_WITHOUT_LABEL = SETTINGS
MOST_TELLING = [
    ("sqlite-file", ANOTHER_QUEUE),
    ("sqlite-file", OWN_PROCESS),
    ("redis", MANY_OTHERS),
    pytest.param("redis", MANY_WITHOUT_LABEL, marks=pytest.mark.slow),
    pytest.param("redis-4", MANY_OTHERS, marks=pytest.mark.slow),
    ("postgres", MANY_OTHERS),
]


@pytest.mark.parametrize(("engine", "name"), MOST_TELLING)
def test_no_start_is_late(tmp_path: Path, engine: str, name: str) -> None:
    def is_prompt() -> bool:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        with closing(open_yard(folder, engine)) as yard:
            late_ms = measure(yard, name, 10)
        return sum(late > PROMPT_MS for late in late_ms) <= 1

    assert is_once(is_prompt, tries=3)


def test_jobs_of_queues_with_weights_are_handed_off(tmp_path: Path) -> None:
    with closing(open_yard(tmp_path, "redis")) as yard:
        worker = yard.start(queues=["default:5,low:1"], slots=2)
        worker.await_log("ready")
        for queue in ("default", "low", "default", "low"):
            yard.script.clock.using(queue=queue).enqueue().result(timeout=10)
        assert worker.stop() == 0
        assert "failed" not in worker.log()


def test_a_burst_runs_each_job_once(tmp_path: Path) -> None:
    """The supervisor has idle children look all the time, while jobs are handed off to them."""
    with closing(open_yard(tmp_path, "redis")) as yard:
        worker = yard.start(processes=2, slots=4, burst=True)
        number = 0
        while worker.process.poll() is None and number < 200:
            yard.plain(f"job-{number}", "sleep:0.01")
            number += 1
        worker.wait()
        starts = [line.label for line in yard.events("start")]
        assert len(starts) == len(set(starts))
        assert "stale" not in worker.log()


@pytest.mark.parametrize(
    "engine",
    [
        "sqlite-file",
        "redis",
        pytest.param("redis-4", marks=pytest.mark.slow),
        pytest.param("postgres", marks=pytest.mark.slow),
    ],
)
def test_a_lower_tier_does_not_overtake(tmp_path: Path, engine: str) -> None:
    with closing(open_yard(tmp_path, engine)) as yard:
        assert overtaken(yard, 15) == 0
