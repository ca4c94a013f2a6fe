"""Values of rounds become medians, ranges, targets, flags and losses."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers.__main__ import chosen
from benchmarks.peers.losses import losses
from benchmarks.peers.reference import is_suspect
from benchmarks.peers.results import merge, read_results, write_results
from benchmarks.peers.systems import SYSTEMS, USUAL
from benchmarks.peers.targets import TARGETS, PeerTarget, best, reached
from tests.benchmarks.sample import sample


def test_a_series_has_its_median_and_range() -> None:
    series = sample().find("windlass-redis", "enqueue")
    assert series
    assert (series.least, series.median, series.most) == (2900.0, 3000.0, 3300.0)


def test_rounds_add_to_the_same_series() -> None:
    results = sample()
    results.add("sidekiq", {"enqueue": 9000.0, "stored": 195.0})
    results.add("sidekiq", {"stored": 197.0})
    assert results.median("sidekiq", "enqueue") == 4400.0
    assert results.median("sidekiq", "stored") == 196.0


def test_a_later_run_adds_rounds_of_some_workloads() -> None:
    later = sample()
    later.series = [one for one in later.series if one.measure == "enqueue"]
    merged = merge([sample(), later])
    enqueued = merged.find("windlass-redis", "enqueue")
    stored = merged.find("windlass-redis", "stored")
    assert enqueued
    assert stored
    assert len(enqueued.values) == merged.runs == 2 * len(sample().series[0].values)
    assert len(stored.values) < merged.runs
    assert merged.minutes == 2 * sample().minutes


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_results(tmp_path / "results.json", sample())
    assert read_results(tmp_path / "results.json") == sample()


def test_the_best_of_several_systems_and_measures() -> None:
    systems = ("windlass-redis", "bullmq", "sidekiq", "absent")
    assert best(sample(), systems, ("enqueue",)) == ("bullmq", 4500.0)
    assert best(sample(), systems, ("stored",)) == ("windlass-redis", 160.0)
    drains = ("drain-sync-1", "drain-async-1")
    assert best(sample(), ("windlass-redis",), drains) == ("windlass-redis", 24000.0)
    assert best(sample(), ("absent",), drains) is None


@pytest.mark.parametrize(
    ("measure", "bound", "is_met"),
    [("drain-async-1", 4.0, True), ("drain-async-1", 4.1, False), ("stored", 0.5, False)],
)
def test_a_target_is_met_in_its_direction(measure: str, bound: float, is_met: bool) -> None:
    made = reached(sample(), PeerTarget("", "windlass-redis", (measure,), ("bullmq",), bound))
    assert made
    assert made.is_met is is_met


def test_the_bare_loop_is_a_measure_of_the_same_system() -> None:
    [target] = [target for target in TARGETS if target.against_measures == ("limit-enqueue",)]
    made = reached(sample(), target)
    assert made
    assert made.ratio == 0.75
    assert made.is_met


def test_a_target_without_figures_is_not_reached() -> None:
    assert reached(sample(), PeerTarget("", "windlass-redis", ("bulk",), ("bullmq",), 1)) is None


@pytest.mark.parametrize(
    ("measure", "value", "expected"),
    [
        ("enqueue", 2100.0, True),
        ("enqueue", 2300.0, False),
        ("drain-async-1", 5000.0, True),
        ("pick-up-p50", 3.3, True),
        ("pick-up-p50", 3.1, False),
        ("import", 900.0, False),
    ],
)
def test_a_figure_far_worse_than_before_is_suspect(
    measure: str, value: float, expected: bool
) -> None:
    assert is_suspect("bullmq", measure, value) is expected


def test_losses_are_the_figures_where_another_system_is_ahead() -> None:
    [loss] = losses(sample())
    assert (loss.measure, loss.peer, loss.ours, loss.theirs) == ("enqueue", "bullmq", 3000, 4500)
    assert loss.factor == 1.5


def test_systems_are_chosen_by_name_and_by_store() -> None:
    assert [system.name for system in chosen(["bullmq", "huey-redis"], None)] == [
        "bullmq",
        "huey-redis",
    ]
    on_postgres = {"windlass-postgres", "pgqueuer", "procrastinate", "graphile-worker"}
    assert {system.name for system in chosen(None, ["postgres"])} == on_postgres
    assert chosen(["bullmq"], ["postgres"]) == []
    assert len(chosen(None, None)) == len(USUAL) < len(SYSTEMS)
