"""The table of metrics: names that dashboards and alerts of users depend on."""

from __future__ import annotations

import pytest

from windlass.telemetry.metric_table import TABLE, Kind, Metric


@pytest.mark.parametrize("metric", TABLE, ids=lambda metric: metric.name)
def test_names_follow_the_conventions_of_prometheus(metric: Metric) -> None:
    assert metric.name.startswith("windlass_")
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.kind is not Kind.HISTOGRAM or metric.name.endswith("_seconds")
    assert metric.text.endswith(".")


def test_no_label_can_have_any_number_of_values() -> None:
    bounded = {"kind", "outcome", "process", "queue", "schedule", "state", "task", "verb"}
    assert {label for metric in TABLE for label in metric.labels} == bounded


def test_names_are_unique() -> None:
    assert len({metric.name for metric in TABLE}) == len(TABLE)
