"""`windlass dead retry ID --args`: retry one dead job with other arguments.

1. Read the old call: arguments that are not given stay.
2. Replace the given arguments.
3. Check the call as at an enqueue, unless the operator asks for no check, and store it by
   `app.dead`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import click
import msgspec

from windlass.app import Windlass
from windlass.cli.support.calls import parse, require_fit
from windlass.cli.support.wording import sentence
from windlass.core.foreign_words import suggest_dotted
from windlass.core.serialization.envelope import unpack
from windlass.engine.contract import JobRecord
from windlass.errors import DecodeError, EncodeError, MissingDecoder
from windlass.task import Task
from windlass.twins import run

#: An error shows at most this many characters of the refused text.
_SHOWN: Final = 80


def retry_with(
    app: Windlass,
    record: JobRecord,
    args_text: str | None,
    kwargs_text: str | None,
    *,
    unchecked: bool,
) -> None:
    """Retry a job with the given arguments. Its record is already decrypted."""
    with fitting():
        args, kwargs = new_arguments(app, record, args_text, kwargs_text, unchecked=unchecked)
        run(app, app.dead.replacing_call(record.id, args, kwargs, unchecked=unchecked))


def _require_task(app: Windlass, record: JobRecord) -> Task[..., Any]:
    """Return the task that checks the arguments of a job."""
    task = app.known_tasks.get(record.task)
    if task is None:
        raise click.UsageError(
            f"The arguments cannot be checked: the task {record.task} is not known here."
            f"{suggest_dotted(record.task, app.known_tasks)} Name the app that declares it with "
            "--app; after a rename, add this name to the aliases of the task. --unchecked stores "
            "the arguments without the check."
        )
    return task


@contextmanager
def fitting() -> Iterator[None]:
    """Report arguments that do not fit the task as wrong usage."""
    try:
        yield
    except (TypeError, ValueError, DecodeError, EncodeError) as error:
        raise click.UsageError(f"The arguments do not fit: {sentence(error)}") from error


def new_arguments(
    app: Windlass,
    record: JobRecord,
    args_text: str | None,
    kwargs_text: str | None,
    *,
    unchecked: bool,
) -> tuple[Any, dict[str, Any]]:
    """Replace the stored arguments by those of the options."""
    _require_readable(app, record, is_whole=None not in (args_text, kwargs_text))
    task = None if unchecked else _require_task(app, record)
    call = _stored_call(record)
    if args_text is not None:
        call["args"] = parse("--args", args_text, list[msgspec.Raw], shown=args_text[:_SHOWN])
    if kwargs_text is not None:
        kind = dict[str, msgspec.Raw]
        call["kwargs"] = parse("--kwargs", kwargs_text, kind, shown=kwargs_text[:_SHOWN])
    if task is not None and args_text is None:
        _name_positional(call, task)
    try:
        return _decode(call, task)
    except (TypeError, ValueError, DecodeError) as error:
        if kwargs_text is None and call.get("kwargs"):
            names = ", ".join(call["kwargs"])
            raise TypeError(
                f"{sentence(error)} The stored keyword arguments stay ({names}): give --kwargs "
                "too, '{}' for none"
            ) from error
        raise


def _require_readable(app: Windlass, record: JobRecord, *, is_whole: bool) -> None:
    """Refuse an intact call that this app cannot read. A damaged call may be replaced."""
    try:
        codec = app.packing.unpack_call(record.payload, record.task).codec
    except MissingDecoder as error:
        raise click.ClickException(
            f"The stored call of job {record.id} cannot be read here, so it cannot be changed: "
            f"{error}."
        ) from error
    except DecodeError:
        return
    if codec == "pickle" and not is_whole:
        raise click.UsageError(
            f"The stored call of job {record.id} is a pickle, and cannot be changed in part: give "
            "both --args and --kwargs, [] or {} for none."
        )


def _stored_call(record: JobRecord) -> dict[str, Any]:
    """Return the stored call; empty if the bytes are not a call."""
    try:
        envelope = unpack(record.payload, record.task)
        return msgspec.json.decode(envelope.call, type=dict[str, Any])
    except (DecodeError, msgspec.DecodeError):
        return {}


def _name_positional(call: dict[str, Any], task: Task[..., Any]) -> None:
    """Convert stored positional arguments to keywords, so that given keywords replace them."""
    parameters = list(inspect.signature(task.function).parameters.values())
    stored = call.get("args", [])
    taken = parameters[1 if task.takes_context else 0 :][: len(stored)]
    if len(taken) == len(stored) and all(one.kind is one.POSITIONAL_OR_KEYWORD for one in taken):
        named = {one.name: value for one, value in zip(taken, stored, strict=True)}
        given = call.get("kwargs", {})
        if not named.keys().isdisjoint(given):
            call["args"], call["kwargs"] = [], {**named, **given}


def _decode(call: dict[str, Any], task: Task[..., Any] | None) -> tuple[Any, dict[str, Any]]:
    """The arguments as a worker would rebuild them; plain data without a task."""
    encoded = msgspec.json.encode(call)
    if task is not None:
        require_fit(task, len(call.get("args", [])), call.get("kwargs", {}))
        return task.codecs["json"].decode(encoded)
    plain = msgspec.json.decode(encoded)
    return plain.get("args", []), plain.get("kwargs", {})
