"""Fixtures for the tests of tracing: collectors of spans and durations, and an instrumented app."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.telemetry.otel.collector import Collector
from windlass import Retry, Windlass
from windlass.telemetry.otel import instrument
from windlass.testing import Sandbox


@pytest.fixture
def collector() -> Collector:
    return Collector()


@pytest.fixture
def app(collector: Collector) -> Iterator[Windlass]:
    """An app whose runs of `*.alone` begin new traces."""
    with Windlass("sqlite:///:memory:", retry=Retry(3, base=1, jitter=0)) as app:
        instrument(app, collector.tracers, collector.meters, links=["*.alone"])
        yield app


@pytest.fixture
def box(app: Windlass) -> Iterator[Sandbox]:
    with Sandbox(app) as box:
        yield box
