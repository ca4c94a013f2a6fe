"""Snapshots of jobs for tests, with arguments and result as Python values."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from windlass.app import Windlass
from windlass.core.serialization.codec import decode_plain
from windlass.core.states import State
from windlass.engine.contract import Engine, Filter, JobRecord
from windlass.errors import DecodeError, MissingDecoder
from windlass.job import JobInfo
from windlass.remote_task import RemoteTask

R_co = TypeVar("R_co", covariant=True)


class SandboxJob(JobInfo, Generic[R_co], frozen=True, kw_only=True):
    """A job at one instant: `JobInfo` with arguments and result."""

    arguments: Mapping[str, Any]  # by parameter, as the caller passed them; {} if undecodable
    result: R_co | None  # the return value; None until the job has succeeded


class Drained(tuple[SandboxJob[Any], ...]):
    """The jobs that a drain ran, in the order of their first run, as they are after the drain."""

    __slots__ = ()

    @property
    def succeeded(self) -> tuple[SandboxJob[Any], ...]:
        return self._in(State.SUCCEEDED)

    @property
    def failed(self) -> tuple[SandboxJob[Any], ...]:
        """The jobs that failed: they will be retried, or are dead."""
        return self._in(State.RETRYING, State.DEAD)

    @property
    def dead(self) -> tuple[SandboxJob[Any], ...]:
        return self._in(State.DEAD)

    def _in(self, *states: State) -> tuple[SandboxJob[Any], ...]:
        return tuple(job for job in self if job.state in states)


def see_all(app: Windlass, engine: Engine, task: str | None) -> list[SandboxJob[Any]]:
    """Snapshots of the jobs of one task, or of all tasks, the oldest first."""
    records = sorted(_find(engine, Filter(task=task)), key=lambda one: (one.created_ms, one.id))
    return see(app, engine, [record.id for record in records])


def see(app: Windlass, engine: Engine, ids: Sequence[str]) -> list[SandboxJob[Any]]:
    """Snapshots of these jobs, without jobs that were removed."""
    return [_see(app, record) for record in engine.get(ids) if record is not None]


def _find(engine: Engine, filter: Filter) -> Iterator[JobRecord]:
    page = engine.find(filter)
    yield from page.records
    while page.cursor is not None:
        page = engine.find(filter, page.cursor)
        yield from page.records


def _see(app: Windlass, record: JobRecord) -> SandboxJob[Any]:
    result = None
    if record.result is not None:
        result = app.decode_result(record.task, record.id, record.result)
    return SandboxJob(
        **msgspec.structs.asdict(JobInfo.of(app.packing.reveal_failures(record))),
        arguments=_arguments(app, record),
        result=result,
    )


def _arguments(app: Windlass, record: JobRecord) -> dict[str, Any]:
    task = app.find_task(record.task)
    try:
        envelope = app.packing.unpack_call(record.payload, record.task)
        if task is None:
            plain: dict[str, Any] = decode_plain(bytes(envelope.call), envelope.codec)
            return plain
        args, kwargs = task.codecs[envelope.codec].decode(bytes(envelope.call))
    except (DecodeError, MissingDecoder):
        return {}
    if isinstance(task, RemoteTask) and task.schema is not None:
        return kwargs
    signature = inspect.signature(task.function)
    first = (None,) if task.takes_context else ()
    bound = signature.bind(*first, *args, **kwargs).arguments
    return dict(list(bound.items())[len(first) :])
