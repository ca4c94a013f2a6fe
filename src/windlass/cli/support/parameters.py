"""The options and arguments that commands share, and the types of their values.

An invalid value is refused here, before anything is imported or opened.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from windlass.client.options import read_call_options
from windlass.core.durations import MAX_DURATION_MS, describe_ms, to_ms
from windlass.core.ids import check_id
from windlass.core.quantities import describe_bytes, to_bytes
from windlass.core.queues.labels import read_labels
from windlass.core.queues.plans import read_tiers
from windlass.settings import LOG_LEVELS
from windlass.worker.options import MAX_AUTOSCALE, read_address

#: The smallest memory limit of a child, in bytes.
LEAST_MEMORY = 16 * 10**6

F = TypeVar("F", bound=Callable[..., Any])


class WholeNumber(click.IntRange):
    """A whole number, shown as NUMBER in the help."""

    name = "whole number"


# ---------------------------------------------------------------------------------------- options


app_option = click.option(
    "--app",
    "app_path",
    metavar="MODULE:ATTR",
    help="The app, for example shop.tasks:app. [default: WINDLASS_APP, then pyproject.toml]",
)
url_option = click.option(
    "--url",
    metavar="URL",
    help="The engine, for example sqlite:///jobs.db. [default: the app's, then WINDLASS_URL]",
)
log_level_option = click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    metavar="LEVEL",
    help="Log lines of this level and above: debug, info, warning, error or critical. "
    "[default: the app's, then WINDLASS_LOG_LEVEL, then info]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
limit_option = click.option(
    "--limit",
    default=50,
    show_default=True,
    type=WholeNumber(1),
    metavar="N",
    help="List at most this many.",
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def connection_options(command: F) -> F:
    return app_option(url_option(command))


def ids_argument(*, required: bool) -> Callable[[F], F]:
    """Add an argument: any number of ids, without duplicates."""
    return click.argument(
        "ids",
        nargs=-1,
        required=required,
        type=job_id,
        metavar="ID..." if required else "[ID]...",
        callback=lambda _ctx, _parameter, ids: tuple(dict.fromkeys(ids)),
    )


# ----------------------------------------------------------------------------------------- values


def _checked(check: Callable[[str], object]) -> Callable[[str], str]:
    """Create a parameter type: text that must pass a check."""

    def read(value: str) -> str:
        try:
            check(value)
        except ValueError as error:
            raise click.BadParameter(f"{error}.") from error
        return value

    return read


job_id = _checked(check_id)
queue_name = _checked(lambda value: read_call_options({"queue": value}))
tier = _checked(lambda value: read_tiers([value]))
label = _checked(lambda value: read_labels([value]))
address = _checked(read_address)


def duration(value: str) -> timedelta:
    try:
        return timedelta(milliseconds=to_ms(value, name="it"))
    except ValueError as error:
        raise click.BadParameter(
            "expected a duration such as 90s, 10m or 1h30m, at most "
            f"{describe_ms(MAX_DURATION_MS)}, found {value!r}."
        ) from error


def duration_or_off(value: str) -> timedelta:
    return timedelta(0) if value == "off" else duration(value)


def number_or_off(value: str) -> int:
    if value == "off":
        return 0
    if value.isascii() and value.isdigit() and int(value) > 0:
        return int(value)
    raise click.BadParameter(f"expected a whole number of at least 1, or off, found {value!r}.")


def memory_size(value: str) -> int:
    try:
        size = to_bytes(value, name="it")
    except ValueError as error:
        raise click.BadParameter(
            f"expected a size such as 512MB or 2GB, found {value!r}."
        ) from error
    if size < LEAST_MEMORY:
        raise click.BadParameter(
            f"expected at least {describe_bytes(LEAST_MEMORY)}, found {value!r}: "
            "an interpreter alone takes more."
        )
    return size


def child_range(value: str) -> tuple[int, int]:
    """A range of numbers of children, such as 2..8."""
    least, dots, most = value.partition("..")
    numbers = [int(text) for text in (least, most) if text.isascii() and text.isdigit()]
    if dots and len(numbers) == 2 and 1 <= numbers[0] <= numbers[1] <= MAX_AUTOSCALE:
        return numbers[0], numbers[1]
    if not dots or len(numbers) < 2:
        fault = "expected two whole numbers"
    elif numbers[0] < 1:
        fault = f"expected at least 1 child, found {least}"
    elif numbers[1] > MAX_AUTOSCALE:
        fault = f"expected at most {MAX_AUTOSCALE} children, found {most}"
    else:
        fault = f"{least}, the least number, is greater than {most}, the greatest"
    raise click.BadParameter(
        f"{fault}: {value!r}. Write MIN..MAX, such as 2..8 for at least 2 and at most 8 children."
    )


def instant(value: str) -> datetime:
    """Read a time. The offset is required, so that the meaning does not depend on the machine."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter(
            f"expected an ISO time such as 2030-01-31T08:00+01:00, found {value!r}."
        ) from error
    if moment.utcoffset() is None:
        raise click.BadParameter(
            f"expected a time with its offset, found {value!r}. {_with_offset(moment)}"
        )
    return moment


def moment(value: str) -> datetime | timedelta:
    """A point in time, or an age."""
    with suppress(ValueError):
        return timedelta(milliseconds=to_ms(value, name="it"))
    with suppress(ValueError):
        datetime.fromisoformat(value)
        return instant(value)
    raise click.BadParameter(
        "expected an age such as 90s, 10m or 1h30m, or an ISO time such as "
        f"2030-01-31T08:00+01:00, found {value!r}."
    )


def header(value: str) -> tuple[str, str]:
    name, separator, content = value.partition("=")
    if not separator:
        raise click.BadParameter(f"expected NAME=VALUE, found {value!r}.")
    return name, content


def _with_offset(moment: datetime) -> str:
    try:
        return f"For the clock of this machine write {moment.astimezone().isoformat()}."
    except (ValueError, OverflowError):  # the year 1 has no local time
        return "Write for example 2030-01-31T08:00+01:00."
