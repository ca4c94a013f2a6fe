"""`windlass dead retry ID --args`: retry one dead job with other arguments.

1. Read the old call: arguments that are not given stay.
2. Replace the given arguments.
3. Check the call as at an enqueue, unless the operator asks for no check, and store it by
   `app.dead`.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

import click
import msgspec

from windlass.app import Windlass
from windlass.calls.json_calls import call_as_json, read_call, read_plain_call
from windlass.cli.support.calls import fitting, parse
from windlass.cli.support.wording import sentence
from windlass.core.foreign_words import suggest_dotted
from windlass.engine.contract import JobRecord
from windlass.errors import DecodeError, InvalidCall, MissingDecoder
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
    task = app.find_task(record.task)
    if task is None:
        names = (*app.known_tasks, *app.remote_tasks)
        raise click.UsageError(
            f"The arguments cannot be checked: the task {record.task} is not known here."
            f"{suggest_dotted(record.task, names)} Name the app that declares it with "
            "--app; after a rename, add this name to the aliases of the task. --unchecked stores "
            "the arguments without the check."
        )
    return task


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
    stored = call_as_json(app, record)  # empty if the bytes are not a call
    args, kwargs = stored.args, stored.kwargs
    if args_text is not None:
        args = parse("--args", args_text, list[msgspec.Raw], shown=args_text[:_SHOWN])
    if kwargs_text is not None:
        kind = dict[str, msgspec.Raw]
        kwargs = parse("--kwargs", kwargs_text, kind, shown=kwargs_text[:_SHOWN])
    if task is not None and args_text is None:
        args, kwargs = _name_positional(args, kwargs, task)
    try:
        if task is None:
            return read_plain_call(record.task, args, kwargs)
        return read_call(task, args, kwargs, allow_unread=True)
    except InvalidCall as error:
        if kwargs_text is None and kwargs:
            raise TypeError(
                f"{sentence(error)} The stored keyword arguments stay ({', '.join(kwargs)}): give "
                "--kwargs too, '{}' for none"
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


def _name_positional(
    args: list[msgspec.Raw], kwargs: dict[str, msgspec.Raw], task: Task[..., Any]
) -> tuple[list[msgspec.Raw], dict[str, msgspec.Raw]]:
    """Convert stored positional arguments to keywords, so that given keywords replace them."""
    parameters = list(inspect.signature(task.function).parameters.values())
    taken = parameters[1 if task.takes_context else 0 :][: len(args)]
    if len(taken) == len(args) and all(one.kind is one.POSITIONAL_OR_KEYWORD for one in taken):
        named = {one.name: value for one, value in zip(taken, args, strict=True)}
        if not named.keys().isdisjoint(kwargs):
            return [], {**named, **kwargs}
    return args, kwargs
