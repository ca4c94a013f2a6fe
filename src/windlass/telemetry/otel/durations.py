"""The histograms of OpenTelemetry's messaging conventions: how long enqueues and runs take."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.metrics import MeterProvider, get_meter

from windlass.core import installed_version
from windlass.core.history import BOUNDS_S
from windlass.telemetry.otel.attributes import ERROR_TYPE
from windlass.telemetry.otel.safety import measuring


class Durations:
    """Both histograms of an app, in seconds, with the buckets of windlass's own metrics."""

    def __init__(self, meter_provider: MeterProvider | None) -> None:
        meter = get_meter("windlass", installed_version(), meter_provider)
        self._enqueue = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="Duration of an enqueue.",
            explicit_bucket_boundaries_advisory=BOUNDS_S,
        )
        self._run = meter.create_histogram(
            "messaging.process.duration",
            unit="s",
            description="Duration of a run of a job.",
            explicit_bucket_boundaries_advisory=BOUNDS_S,
        )

    def record_enqueue(
        self, seconds: float, attributes: Mapping[str, str], error_type: str | None
    ) -> None:
        with measuring:
            self._enqueue.record(seconds, _with_error(attributes, error_type))

    def record_run(
        self, seconds: float, attributes: Mapping[str, str], error_type: str | None
    ) -> None:
        with measuring:
            self._run.record(seconds, _with_error(attributes, error_type))


def _with_error(attributes: Mapping[str, str], error_type: str | None) -> Mapping[str, str]:
    return attributes if error_type is None else {**attributes, ERROR_TYPE: error_type}
