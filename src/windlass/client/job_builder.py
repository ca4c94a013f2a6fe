"""Build the jobs of a task from encoded calls.

1. `JobBuilder` prepares once what all calls of a task with the same options share: the line of the
   queue, the times, the limit, and whether a call is stored bare. Each call then costs one id and
   one `NewJob`.
2. `pack` makes the stored payload of a call, `build` a job, `build_all` many jobs.
3. `Run` is a sequence of calls with the same builder, `Chunk` the runs that are stored together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from windlass.client.options import NO_CHOICES, Choices, Moment
from windlass.core.durations import instant
from windlass.core.headers import check_bounds, is_reserved, read_headers, with_trace
from windlass.core.queues.labels import line_of
from windlass.core.serialization.codec import CallCodec, check_size
from windlass.core.serialization.envelope import VERSION, Envelope, Overrides
from windlass.core.unique import Unique
from windlass.engine.contract import NewJob, UniqueKey
from windlass.middleware import EnqueueCall

if TYPE_CHECKING:
    from windlass.app import Windlass

DEFAULT_PRIORITY: Final = 0
_NO_MOMENT: Final = Moment()


class JobBuilder:
    """Builds the jobs of one task with one set of options.

    `choices` are all options, `chosen` only those of the caller: a job stores the options of its
    caller. A builder never changes: a task with other options has another one."""

    __slots__ = (
        *("app", "choices", "codec", "connection", "encode", "fields", "line", "queue", "task"),
        *("_chosen", "_is_bare", "_is_keyed", "_limit", "_unique"),
    )

    def __init__(
        self,
        app: Windlass,
        task: str,
        codec: CallCodec,
        queue: str,
        *,
        unique: Unique | None = None,
        choices: Choices = NO_CHOICES,
        chosen: Choices = NO_CHOICES,
    ) -> None:
        self.app = app
        self.task = task
        self.codec = codec
        self.encode = codec.encode
        self.choices = choices
        #: The connection of the caller, in whose transaction the jobs are stored.
        self.connection = choices.connection
        self.queue = choices.queue or queue
        #: The sub-queue of the jobs: their queue, or a separate one if they require labels.
        self.line = line_of(self.queue, choices.requires) if choices.requires else self.queue
        self._chosen = chosen
        self._unique = unique
        self._is_keyed = unique is not None or choices.idempotency_key is not None
        self._is_bare = app.packing.is_plain and not choices.headers and not _has_overrides(chosen)
        self._limit = app.settings.max_payload
        run_after, expires = choices.run_after or _NO_MOMENT, choices.expires or _NO_MOMENT
        #: The fields of `NewJob` after its payload that all jobs share.
        self.fields = (
            choices.priority or DEFAULT_PRIORITY,
            run_after.at_ms,
            run_after.in_ms or 0,
            expires.at_ms,
            expires.in_ms,
            choices.idempotency_key,
        )

    def enqueue_call(self) -> EnqueueCall:
        """Make the call that middleware gets."""
        own = self.choices.headers or {}
        headers = {name: value for name, value in own.items() if not is_reserved(name)}
        run_after = _run_after(self.choices.run_after)
        return EnqueueCall(self.task, self.queue, self.fields[0], headers, run_after)

    def pack(
        self, call: bytes, enqueue_call: EnqueueCall | None = None, *, repeatable: bool = False
    ) -> bytes:
        """Make the stored payload of a call, with the headers of the middleware if there is some.
        With `repeatable` the bytes are deterministic. Raises `PayloadTooLarge`."""
        if self._is_bare and enqueue_call is None:
            payload = call
        else:
            headers = self.choices.headers
            if enqueue_call is not None:
                ours = {name: one for name, one in (headers or {}).items() if is_reserved(name)}
                headers = {**read_headers(enqueue_call.headers), **ours}
                if enqueue_call.trace_headers:
                    headers = with_trace(headers, enqueue_call.trace_headers)
            envelope = _envelope(self.task, self.codec.mark, call, self._chosen, headers)
            payload = self.app.packing.pack_call(envelope, repeatable=repeatable)
        if len(payload) > self._limit:
            check_size(payload, self._limit, f"The call of {self.task}")
        return payload

    def build(self, call: bytes, enqueue_call: EnqueueCall | None = None) -> NewJob:
        """Make a job with a new id."""
        payload, new_id = self.pack(call, enqueue_call), self.app.engine.new_id
        if not self._is_keyed:
            job_id = new_id(self.task, self.line, None)
            return NewJob(job_id, self.task, self.line, payload, *self.fields)
        key, packing = self.choices.idempotency_key, self.app.packing
        unique = None if self._unique is None else self._unique_key(call, self._unique)
        digest = packing.digest(self.codec.plain(call)) if key else ""
        job_id = new_id(self.task, self.line, key, unique.key if unique else None)
        return NewJob(job_id, self.task, self.line, payload, *self.fields, digest, unique)

    def build_all(self, calls: Sequence[bytes]) -> list[NewJob]:
        """Make a job of each call. A key decides the partition of its job, so a job with a key gets
        its own id."""
        if self._is_keyed:
            return [self.build(call) for call in calls]
        task, line, fields, pack = self.task, self.line, self.fields, self.pack
        ids = self.app.engine.new_ids(len(calls), task, line)
        return [
            NewJob(id, task, line, pack(call), *fields) for id, call in zip(ids, calls, strict=True)
        ]

    def _unique_key(self, call: bytes, unique: Unique) -> UniqueKey:
        return UniqueKey(
            key=self.app.packing.digest(self.codec.identity(call, unique.by)),
            until=unique.until,
            period_ms=unique.period_ms,
            on_conflict=unique.on_conflict,
        )


Run: TypeAlias = tuple[JobBuilder, list[bytes]]
Chunk: TypeAlias = list[Run]


def _run_after(moment: Moment | None) -> datetime | timedelta | None:
    if moment is None:
        return None
    return instant(moment.at_ms) or timedelta(milliseconds=moment.in_ms or 0)


def _has_overrides(chosen: Choices) -> bool:
    options = (chosen.retry, chosen.result_ttl_ms, chosen.timeout_ms)
    return any(option is not None for option in options)


def _envelope(
    task: str, codec: str, call: bytes, chosen: Choices, headers: Mapping[str, str] | None
) -> Envelope:
    raw = msgspec.Raw(call)
    if headers:
        check_bounds(headers)  # the task's and the caller's headers, merged
    elif not _has_overrides(chosen):
        return Envelope(version=VERSION, task=task, call=raw, codec=codec)
    overrides = Overrides(
        retry=None if chosen.retry is None else chosen.retry.to_data(),
        result_ttl_ms=chosen.result_ttl_ms,
        timeout_ms=chosen.timeout_ms,
    )
    headers = dict(headers or ())
    return Envelope(task=task, call=raw, headers=headers, options=overrides, codec=codec)
