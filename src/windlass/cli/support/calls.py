"""Read a call from the JSON of a command line, as a worker would read it.

1. `parse` reads the outermost level of `--args` and `--kwargs`. `windlass.calls.json_calls` decodes
   the values by the annotations of the task.
2. `fitting` reports arguments that do not fit as wrong usage.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import click
import msgspec

from windlass.cli.support.wording import sentence
from windlass.errors import DecodeError, EncodeError

T = TypeVar("T")


def parse(option: str, text: str, kind: type[T], *, shown: str, advice: str = "") -> T:
    """Decode the value of `--args` or `--kwargs`. An error shows the text as `shown`."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        shape = "a JSON array" if option == "--args" else "a JSON object"
        raise click.UsageError(
            f"{option} expects {shape}, found {shown!r}: {error}.{advice}"
        ) from error


@contextmanager
def fitting() -> Iterator[None]:
    """Report arguments that do not fit the task as wrong usage."""
    try:
        yield
    except (TypeError, ValueError, DecodeError, EncodeError) as error:
        raise click.UsageError(f"The arguments do not fit: {sentence(error)}") from error
