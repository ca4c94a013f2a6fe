"""Change a job: its arguments, its queue, or when it starts.

All parts change in one step, and only if the job is still as it was read; otherwise it is read
again. A value that is the mark of a redacted one is refused: it would replace the secret.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final

import msgspec

from windlass.app import Windlass
from windlass.calls.edit import edited_payload
from windlass.calls.json_calls import call_as_json, read_call
from windlass.core.durations import to_ms
from windlass.core.queues.labels import labels_of, line_of, queue_of
from windlass.core.redaction import REDACTED, has_redacted
from windlass.core.states import Hold
from windlass.engine.contract import ChangeCode, JobChange, JobRecord, Revival
from windlass.errors import DuplicateJob, InvalidCall
from windlass.http.access import Principal
from windlass.http.problems import Problem, ProblemType, invalid
from windlass.http.resources.fields import QueueName, Seconds
from windlass.http.resources.job_view import JobAnswer, describe_job
from windlass.http.resources.jobs import JobPath
from windlass.http.resources.new_jobs import (
    Keywords,
    Positional,
    check_sent_size,
    find_task,
    misfit,
)
from windlass.http.resources.scope import find_job, no_such_job, shown_duplicate
from windlass.http.routes import OPERATORS, ApiRequest, route
from windlass.jobs import CHANGEABLE, REVIVABLE

#: How often a job is read again after another process has changed it.
TRIES: Final = 10

log: Final = logging.getLogger("windlass.jobs")


class EditBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change. A part that is left out stays as it is."""

    args: Positional | None = None  # all positional arguments
    kwargs: Keywords | None = None  # all keyword arguments
    queue: QueueName | None = None
    run_in_s: Seconds | None = None  # start this much later; 0: now

    @property
    def edits_call(self) -> bool:
        return self.args is not None or self.kwargs is not None

    @property
    def moves(self) -> bool:
        return self.queue is not None or self.run_in_s is not None


@route(
    "PATCH",
    "/v1/jobs/{id}",
    roles=OPERATORS,
    problems=[ProblemType.CONFLICT, ProblemType.DUPLICATE],
)
async def edit_job(call: ApiRequest, path: JobPath, body: EditBody) -> JobAnswer:
    """Change the arguments, the queue or the start of a job that waits.

    The task checks new arguments. A dead or cancelled job whose arguments are changed becomes ready
    again, with all its attempts. The history keeps the old arguments. Values that were shown as
    `[redacted]` cannot be sent back: leave out `args` or `kwargs` to keep the stored ones."""
    if not body.edits_call and not body.moves:
        raise invalid("body", "expected something to change: args, kwargs, queue or run_in_s")
    if body.queue is not None:
        call.principal.require_queue(body.queue)
    try:
        await call.gateway.call(_edit, call.gateway.app, call.principal, path.id, body)
    except DuplicateJob as error:
        raise await shown_duplicate(call, error) from None
    record = await find_job(call, path.id)
    return await call.gateway.call(describe_job, call.gateway.app, record)


def _edit(app: Windlass, principal: Principal, id: str, body: EditBody) -> None:
    for _ in range(TRIES):
        (record,) = app.engine.get([id])
        if record is None or not principal.may_use(queue_of(record.queue)):
            raise no_such_job(id)
        payload = _new_payload(app, principal, record, body) if body.edits_call else None
        code = _change(app, record, body, payload)
        if code is ChangeCode.DONE:
            return
        if code is ChangeCode.DUPLICATE:
            (holder,) = app.engine.holders([(record.task, record.unique_key or "")])
            raise DuplicateJob(record.task, holder or "that has ended since", id)
    raise Problem(
        ProblemType.CONFLICT,
        f"Job {id} was changed by others {TRIES} times meanwhile. Send the request again.",
    )


def _change(app: Windlass, record: JobRecord, body: EditBody, payload: bytes | None) -> ChangeCode:
    if record.state in REVIVABLE and payload is not None and not body.moves:
        revival = Revival(id=record.id, finished_ms=record.finished_ms, payload=payload)
        return app.engine.revive([revival])[0]
    if record.state not in CHANGEABLE:
        raise _unchangeable(record, body)
    run_in_ms = None if body.run_in_s is None else to_ms(body.run_in_s, name="run_in_s")
    if run_in_ms is None and payload is not None and record.hold is Hold.UNROUTABLE:
        run_in_ms = 0  # a worker may accept the new arguments: let one try at once
    change = JobChange(
        id=record.id,
        seen=record.revision,
        seen_payload=None if payload is None else record.payload,
        payload=payload,
        queue=body.queue and line_of(body.queue, labels_of(record.queue)),
        run_in_ms=run_in_ms,
    )
    return app.engine.change_jobs([change])[0]


def _unchangeable(record: JobRecord, body: EditBody) -> Problem:
    advice = ""
    if record.state in REVIVABLE and body.moves:
        advice = " Retry the job first, or change only its arguments."
    return Problem(
        ProblemType.CONFLICT, f"Job {record.id} is {record.state}, and does not wait.{advice}"
    )


def _new_payload(app: Windlass, principal: Principal, record: JobRecord, body: EditBody) -> bytes:
    """The payload with the new arguments, which the task has checked."""
    task = find_task(app, principal, record.task, "body")
    args, kwargs = body.args, body.kwargs
    if args is None or kwargs is None:
        stored = call_as_json(app, record)
        if stored.problem:
            raise Problem(
                ProblemType.CONFLICT,
                f"The arguments of job {record.id} cannot be read: {stored.problem}. Send both "
                "args and kwargs to replace them.",
            )
        args = tuple(stored.args) if args is None else args
        kwargs = stored.kwargs if kwargs is None else kwargs
    check_sent_size(app, task, args, kwargs, "body")
    _refuse_redacted("body.args", list(body.args or ()))
    _refuse_redacted("body.kwargs", list((body.kwargs or {}).values()))
    try:
        positional, named = read_call(task, args, kwargs)
        return edited_payload(app, record, task, positional, named, log)
    except InvalidCall as error:
        raise misfit(error, task, args, kwargs, "body") from None


def _refuse_redacted(place: str, values: list[msgspec.Raw]) -> None:
    if has_redacted([_without_whole_numbers(value) for value in values]):
        raise invalid(
            place,
            f"found the value {REDACTED}, which stands for a hidden one. Send the real value, or "
            "leave out this part to keep the stored one",
        )


def _without_whole_numbers(value: msgspec.Raw) -> Any:
    """A value whose whole numbers stay text: Python reads none with thousands of digits, and the
    task may take one."""
    try:
        return json.loads(bytes(value).decode(), parse_int=str)
    except (ValueError, RecursionError):
        return None  # not JSON, or nested too deep: the check by the task refuses it
