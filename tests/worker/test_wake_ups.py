"""A job with a free slot starts at once, whatever other children are idle; tiers stay strict."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.variants import fresh_url
from tests.soon import is_once
from tests.worker.lateness import PROMPT_MS, SETTINGS, measure, overtaken
from tests.worker.yard import Yard

ENGINES = ("sqlite-file", "redis", "redis-4")


def open_yard(folder: Path, engine: str) -> Yard:
    return Yard(folder, "30s", "5s", 3, fresh_url(engine, folder))


#: The proof `wake-ups` has them all.
MOST_TELLING = [
    ("sqlite-file", 0),
    ("sqlite-file", 1),
    ("redis", 2),
    ("redis", 3),
    ("redis-4", 2),
]


@pytest.mark.parametrize(
    ("engine", "name"), [(engine, list(SETTINGS)[number]) for engine, number in MOST_TELLING]
)
def test_no_start_is_late(tmp_path: Path, engine: str, name: str) -> None:
    def is_prompt() -> bool:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        yard = open_yard(folder, engine)
        try:
            late_ms = measure(yard, name, 10)
        finally:
            yard.close()
        return sum(late > PROMPT_MS for late in late_ms) <= 1

    assert is_once(is_prompt, tries=3)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_lower_tier_does_not_overtake(tmp_path: Path, engine: str) -> None:
    yard = open_yard(tmp_path, engine)
    try:
        assert overtaken(yard, 15) == 0
    finally:
        yard.close()
