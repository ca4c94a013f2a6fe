"""The options and arguments that commands share, and the kinds of values that they take.

A value that makes no sense is refused here, before anything is imported or opened.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from windlass.core.durations import MAX_DURATION_MS, describe_ms, instant_ms, to_ms
from windlass.core.ids import check_id
from windlass.options import read_call_options

F = TypeVar("F", bound=Callable[..., Any])


# ---------------------------------------------------------------------------------------- options


def app_option(command: F) -> F:
    return click.option(
        "--app",
        "app_path",
        metavar="MODULE:ATTR",
        help="The app, for example shop.tasks:app. [default: WINDLASS_APP, then pyproject.toml]",
    )(command)


def url_option(command: F) -> F:
    return click.option(
        "--url",
        metavar="URL",
        help="The engine, for example sqlite:///jobs.db. [default: the app's, then WINDLASS_URL]",
    )(command)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def connection_options(command: F) -> F:
    return app_option(url_option(command))


def ids_argument(*, required: bool) -> Callable[[F], F]:
    """Any number of ids, each of them once."""
    return click.argument(
        "ids",
        nargs=-1,
        required=required,
        type=JobId(),
        metavar="ID..." if required else "[ID]...",
        callback=lambda _ctx, _parameter, ids: tuple(dict.fromkeys(ids)),
    )


def id_argument(command: F) -> F:
    return click.argument("job_id", type=JobId(), metavar="ID")(command)


# ----------------------------------------------------------------------------------------- values


class JobId(click.ParamType):
    name = "id"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        try:
            return check_id(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


class QueueName(click.ParamType):
    name = "queue"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        try:
            return read_call_options({"queue": value}).queue or ""
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


class ServedQueue(QueueName):
    """A queue of a worker. The notation of weights is known, so that its use can be answered."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        if ":" in value or "," in value:
            self.fail(
                f"expected the name of one queue, found {value!r}. Weights, and several queues in "
                "one -q, are not there yet: repeat -q, and the first one named has precedence.",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


class Span(click.ParamType):
    """A duration such as 10m."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        try:
            return timedelta(milliseconds=to_ms(value, name="it"))
        except ValueError:
            self.fail(
                "expected a duration such as 90s, 10m or 1h30m, at most "
                f"{describe_ms(MAX_DURATION_MS)}, found {value!r}.",
                param,
                ctx,
            )


class Instant(click.ParamType):
    """A point in time with its offset: whose midnight it is must not depend on the machine."""

    name = "iso"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"expected an ISO time such as 2030-01-31T08:00+01:00, found {value!r}.", param, ctx
            )
        try:
            instant_ms(moment, name="it")
        except ValueError:
            self.fail(
                f"expected a time with its offset, found {value!r}. {_with_offset(moment)}",
                param,
                ctx,
            )
        return moment


def _with_offset(moment: datetime) -> str:
    try:
        return f"For the clock of this machine write {moment.astimezone().isoformat()}."
    except (ValueError, OverflowError):  # the year 1 has no local time
        return "Write for example 2030-01-31T08:00+01:00."
