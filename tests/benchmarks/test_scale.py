"""The page and the charts of `make bench-scale`, and its load on a real engine."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.page import Machine
from benchmarks.scale.chart import draw, nice_ceiling, short
from benchmarks.scale.loaded_engine import measure, open_loaded_engine
from benchmarks.scale.page import page, write_page
from benchmarks.scale.results import (
    Effort,
    EngineTimes,
    Point,
    ScaleResults,
    read_results,
    write_results,
)
from windlass.core.states import State

FAST = EngineTimes(9_000, 8_000, 20.0, 0.5, 1.0)
SLOW = EngineTimes(9_000, 6_000, 25.0, 0.5, 1.5)
RESULTS = ScaleResults(
    Machine(cores=2, python="3.11", system="Linux", sqlite="3.54", redis="7.0"),
    Effort(2_000, 300, 3),
    [
        Point("sqlite", "ready", 1_000, FAST, FAST, 0.01, 1_000),
        Point("sqlite", "ready", 1_000_000, SLOW, FAST, 50.0, 1_250_000),
        Point("redis", "mixed", 1_000_000, SLOW, FAST),
        Point("redis", "queues", 10_000, SLOW, FAST),
    ],
)


def test_ratios_are_large_by_small() -> None:
    point = RESULTS.points[1]
    assert (point.drain_ratio, point.cpu_ratio, point.p99_ratio) == (0.75, 1.25, 1.5)
    assert point.check_s_per_million == 40.0


def test_results_are_read_as_written(tmp_path: Path) -> None:
    write_results(RESULTS, tmp_path / "scale.json")
    assert read_results(tmp_path / "scale.json") == RESULTS


def test_the_page_has_a_line_for_each_point(tmp_path: Path) -> None:
    write_page(RESULTS, tmp_path)
    lines = [
        line for line in page(RESULTS).splitlines() if line.startswith(("| sqlite", "| redis"))
    ]
    assert len(lines) == 4
    assert lines[1] == (
        "| sqlite | 1 M | ready jobs | 9,000 | 6,000 | 0.75 | 25.00 | 1.25 | 1.50 | 1.50 | 40.00 |"
    )
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"scale.md", "scale-drain.svg", "scale-claim.svg", "scale-queues.svg"}


def test_a_chart_is_a_picture_with_all_lines() -> None:
    text = draw("Drain & claim", "ms", {"one": [(1_000, 1), (1e6, 3)], "two": [(1_000, 2)]})
    root = ET.fromstring(text)  # our own picture
    assert len([part for part in root if part.get("class") == "line"]) == 2
    places = [float(part.attrib["cx"]) for part in root.iter() if part.get("r") == "3"]
    assert places[0] < places[1]


@pytest.mark.parametrize(("value", "top"), [(0.7, 0.8), (1.0, 1), (13, 20), (4_100, 8_000)])
def test_axes_end_at_round_numbers(value: float, top: float) -> None:
    assert nice_ceiling(value) == pytest.approx(top)


def test_numbers_of_axes_are_short() -> None:
    assert [short(value) for value in (0.25, 10, 2_500, 10_000_000)] == [
        "0.25",
        "10",
        "2.5 k",
        "10 M",
    ]


def test_the_load_leaves_the_backlog_as_it_was() -> None:
    with (
        open_loaded_engine("sqlite normal", queues=3) as large,
        open_loaded_engine("sqlite normal") as small,
    ):
        large.fill("finished", 10, "test")
        large.fill("scheduled", 7, "test")
        large.fill("ready", 5, "test")
        found = measure([small, large], Effort(jobs=60, claims=20, rounds=2))
        states = large.engine.stats().queues.values()
        assert sum(one.get(State.READY, 0) for one in states) == 5
        assert sum(one.get(State.SCHEDULED, 0) for one in states) == 7
        assert sum(one.get(State.SUCCEEDED, 0) for one in states) == 10 + 2 * 80
        assert large.engine.check() == []
    assert all(one.drain_rate > 0 and one.claim_p99_ms > 0 for one in found)
