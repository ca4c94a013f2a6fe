"""The statistics and the table of `make bench-quick`, and its stored baseline."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.comparison import Samples, compare, table, worse_than
from benchmarks.measures import Taken
from benchmarks.quick import Baseline, add, machine_key, read_baselines, write_baselines


def rate(*values: float, name: str = "drain") -> Samples:
    return Samples(name, "sqlite full", "jobs/s", list(values))


def cost(*values: float) -> Samples:
    return Samples("pick-up p50", "sqlite full", "ms", list(values))


def test_median_and_spread() -> None:
    assert rate(9, 30, 10).median == 10
    assert rate(9, 30, 10).spread == pytest.approx(2.1)


def test_a_ratio_below_one_is_worse_for_rates_and_costs() -> None:
    assert compare([rate(100)], [rate(80)])[0].ratio == pytest.approx(0.8)
    assert compare([cost(8)], [cost(10)])[0].ratio == pytest.approx(0.8)
    assert compare([cost(10)], [cost(8)])[0].ratio == pytest.approx(1.25)


def test_runs_that_took_turns_are_compared_in_pairs() -> None:
    """The machine became ten times slower after the first pair."""
    old, new = rate(1_000, 100, 100, 100), rate(900, 900, 90, 90)
    assert compare([old], [new], is_paired=True)[0].ratio == pytest.approx(0.9)
    assert compare([old], [new])[0].ratio == pytest.approx(4.95)


def test_only_figures_of_both_sides_are_compared() -> None:
    found = compare([rate(1, name="gone"), rate(1)], [rate(1, name="added"), rate(2)])
    assert [(one.new.name, one.ratio) for one in found] == [("drain", 2)]


def test_which_figures_are_worse() -> None:
    found = compare([rate(100), cost(10)], [rate(96), cost(11)])
    assert [one.new.name for one in worse_than(found, 0.95)] == ["pick-up p50"]
    assert worse_than(found, 0.9) == []


def test_the_table() -> None:
    text = table(
        compare([rate(1_000, 1_100, 1_200), cost(2)], [rate(2_200, 2_200, 2_200), cost(2)])
    )
    assert text.splitlines() == [
        "figure                      old    new    unit  spread  ratio",
        "drain, sqlite full        1,100  2,200  jobs/s  18% 0%   2.00",
        "pick-up p50, sqlite full   2.00   2.00      ms   0% 0%   1.00",
    ]


def test_figures_are_collected_by_name_and_setting() -> None:
    found: dict[tuple[str, str], Samples] = {}
    for value in (1.0, 2.0):
        add(found, "sqlite full", [Taken("drain", value, "jobs/s")])
    add(found, "redis everysec", [Taken("drain", 3.0, "jobs/s")])
    assert [samples.values for samples in found.values()] == [[1.0, 2.0], [3.0]]


def test_baselines_of_several_machines_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "build" / "baseline.json"
    assert read_baselines(path) == {}
    stored = {machine_key(): Baseline("abc", [rate(1, 2)]), "other": Baseline("def", [cost(3)])}
    write_baselines(stored, path)
    assert read_baselines(path) == stored
