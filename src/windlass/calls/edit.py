"""Replace the arguments of a stored job.

`edited_payload` encodes the new arguments as an enqueue would, and keeps the headers and options of
the stored call. The unique key of the job stays: the engine holds it for any arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.calls.redaction import CallRedactor
from windlass.core.foreign_words import suggest_dotted
from windlass.core.serialization.codec import check_size, encode_plain
from windlass.core.serialization.envelope import Envelope
from windlass.dead_letter import log_summary
from windlass.engine.contract import JobRecord
from windlass.errors import DecodeError, InvalidTask, MissingDecoder
from windlass.included_modules import import_included

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.task import Task


def require_task(app: Windlass, record: JobRecord) -> Task[..., Any]:
    """Return the task of a job, which checks its arguments. Imports the modules of the setting
    `include` if the task is not known yet."""
    task = app.find_task(record.task)
    if task is None:
        import_included(app.settings.include)
        task = app.find_task(record.task)
    if task is None:
        known = (*app.known_tasks, *app.remote_tasks)
        raise InvalidTask(
            f"The arguments of job {record.id} were not replaced: this app has no task "
            f"{record.task}, so they cannot be checked.{suggest_dotted(record.task, known)} "
            "Import the module that declares it, or name it in Windlass(include=[...]). Without "
            f"the code, app.task_named({record.task!r}).enqueue(...) makes a new job, and "
            f"`windlass job edit {record.id} --args ... --unchecked` changes this one."
        )
    return task


def edited_payload(
    app: Windlass,
    record: JobRecord,
    task: Task[..., Any] | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    log: logging.Logger,
) -> bytes:
    """The payload with other arguments, checked by the task if one is given. An unreadable envelope
    is replaced by a new one. Logs the old call."""
    if task is None:
        codec, call = "json", encode_plain(record.task, args, dict(kwargs))
    else:
        codec, call = task.codec.mark, task.codec.encode(args, dict(kwargs))
    envelope = Envelope(task=record.task, call=msgspec.Raw(call), codec=codec)
    try:
        old = app.packing.unpack_call(record.payload, record.task)
    except MissingDecoder:
        raise  # its headers and options may be forged: do not sign them
    except DecodeError as error:
        log.warning("job %s loses its headers and options: %s", record.id, error)
    else:
        replace = msgspec.structs.replace
        envelope = replace(envelope, headers=old.headers, options=old.options)
    payload = app.packing.pack_changed_call(envelope, record.payload)
    check_size(payload, app.settings.max_payload, f"The call of {record.task}")
    redact = CallRedactor.of(app).redact_text
    log.warning("changing the arguments of %s %s %s %s", *log_summary(record, redact))
    return payload
