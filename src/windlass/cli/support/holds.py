"""Why a ready job is held, as far as the engine knows of it and of the workers.

What a call is sealed with stands in front of it, for all to read; which keys a worker has, it says
of itself. That a worker does not know the task, or that a call does not fit its function, only its
log tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from windlass.cli.support.fleet import WorkerView
from windlass.core.serialization.envelope import unpack
from windlass.core.serialization.seals import describe_sealed
from windlass.core.states import Hold
from windlass.engine.contract import JobRecord
from windlass.errors import DecodeError

_NOT_UNDERSTOOD: Final = (
    "no worker that claimed it knows its task, takes its arguments and reads its codec; their logs "
    "say which it is"
)


def is_unroutable(record: JobRecord) -> bool:
    return record.hold is Hold.UNROUTABLE


def why_held(record: JobRecord, fleet: Sequence[WorkerView]) -> str | None:
    """In words that end a sentence; the record as it is stored, with its payload."""
    if not is_unroutable(record):
        return None
    return _why_sealed(record.payload, fleet) or _NOT_UNDERSTOOD


def _why_sealed(payload: bytes, fleet: Iterable[WorkerView]) -> str:
    try:
        envelope = unpack(payload)
    except DecodeError:
        return ""
    if not envelope.seal or any(envelope.key in worker.keys for worker in fleet):
        return ""
    sealed = describe_sealed(envelope.seal, envelope.key)
    return f"it is {sealed}, which no worker has: start one with the secret that it was made with"
