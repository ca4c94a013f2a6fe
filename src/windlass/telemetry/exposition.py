"""Metrics in the text formats of Prometheus.

This module alone imports the library prometheus_client, of the extra `prometheus`. Import it only
when metrics are served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final

from windlass.core import install_command
from windlass.errors import SettingError
from windlass.telemetry.metric_table import Family, Histogram, Kind

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
    from prometheus_client.openmetrics import exposition as openmetrics
    from prometheus_client.registry import Collector
except ImportError as error:
    raise SettingError(
        f"Metrics need the package {error.name}, which is not installed. Install it "
        f"with: {install_command('prometheus')}."
    ) from error

#: The type of the text format that every scraper reads.
PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text"
#: The library does not annotate its function.
_write_openmetrics: Callable[[Collector], bytes] = openmetrics.generate_latest

ClientFamily = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


def render(families: Iterable[Family], accept: str) -> tuple[str, bytes]:
    """Write metrics in the format that the Accept header asks for; return its type and the text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_FamilyCollector(families))
    if OPENMETRICS in accept:
        return openmetrics.CONTENT_TYPE_LATEST, _write_openmetrics(registry)
    return PLAIN, generate_latest(registry)


class _FamilyCollector(Collector):
    """Pass metrics to the library."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[ClientFamily]:
        return map(_convert, self._families)


def _convert(family: Family) -> ClientFamily:
    metric = family.metric
    if metric.kind is Kind.HISTOGRAM:
        return _convert_histogram(family)
    make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    converted = make(metric.name, metric.text, labels=metric.labels)
    for labels, value in family.values:
        assert not isinstance(value, Histogram), f"{metric.name} is a {metric.kind}"
        converted.add_metric(labels, value)
    return converted


def _convert_histogram(family: Family) -> HistogramMetricFamily:
    metric = family.metric
    converted = HistogramMetricFamily(metric.name, metric.text, labels=metric.labels)
    for labels, value in family.values:
        assert isinstance(value, Histogram), f"{metric.name} is a {metric.kind}"
        bounds = [*map(_bound, value.bounds_s), "+Inf"]
        counts = accumulate(value.buckets)
        buckets = list(zip(bounds, counts, strict=True))
        converted.add_metric(labels, buckets, sum_value=value.sum_s)
    return converted


def _bound(seconds: float) -> str:
    """Write a bound as a float: 1 and 1.0 are the same label for every scraper."""
    return repr(float(seconds))
