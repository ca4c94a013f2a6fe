"""Traces and metrics by OpenTelemetry. Needs the extra `otel`.

`instrument` registers the tracing of an app: spans of enqueues and runs, the trace context in the
headers of jobs, and two histograms. Nothing of OpenTelemetry is imported before that call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from windlass.app import Windlass
from windlass.core import install_command
from windlass.errors import InvalidMiddleware

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["instrument"]


def instrument(
    app: Windlass,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    *,
    links: Iterable[str] = (),
) -> None:
    """Trace every enqueue and every run of this app. Call it once, in the module of the app and
    right after the app is made: producers and workers import that module.

    Without providers, those that the program sets for OpenTelemetry are used, also if it sets them
    later. `links` are names of tasks, in which `*` matches any text. Each run of these tasks begins
    a new trace, with a link to its enqueue; otherwise a run is a child of its enqueue."""
    if not isinstance(app, Windlass):
        raise TypeError(f"instrument expects an app made by Windlass(...), found {app!r}")
    if app.tracing is not None:
        raise InvalidMiddleware(
            f"{app!r} is instrumented already, and would have every span twice: call instrument "
            "once, in the module of the app."
        )
    _check_provider("tracer_provider", tracer_provider, "get_tracer")
    _check_provider("meter_provider", meter_provider, "get_meter")
    patterns = _read_links(links)
    try:
        from windlass.telemetry.otel.tracing import AppTracing
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "opentelemetry":
            raise
        raise ModuleNotFoundError(
            f"instrument needs the package opentelemetry-api, and {error.name} is not installed. "
            f"Install it with: {install_command('otel')}",
            name=error.name,
        ) from error
    AppTracing(app, tracer_provider, meter_provider, patterns).register()


def _check_provider(name: str, provider: object, verb: str) -> None:
    if provider is not None and not hasattr(provider, verb):
        kind = name.partition("_")[0].capitalize()
        raise TypeError(
            f"{name} must be a {kind}Provider of OpenTelemetry, such as that of opentelemetry.sdk, "
            f"found {provider!r}: leave it out to use the one that the program sets"
        )


def _read_links(links: Iterable[str]) -> tuple[str, ...]:
    if isinstance(links, str):
        raise TypeError(
            f"links must be a list of names of tasks, found {links!r}: write [{links!r}]"
        )
    names = tuple(links)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"links must be names of tasks, found {name!r}: write its name")
    return names
