"""Changes of the state of a bulk operation by a caller: pause, resume and stop.

A runner that works on the operation notices the change before its next step, and adds what it has
changed since its last write. The mark that runners look for is renewed after the operation runs
again, and removed only in the revision that was read before the change: so a resumption that comes
at the same moment as a pause keeps its mark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from windlass.engine.clock import read_clock
from windlass.engine.contract import Engine
from windlass.errors import OperationRefused, TooManyOperations
from windlass.operations.documents import (
    ACTIVE,
    change_of,
    decode_record,
    get_operation,
    read_mark,
    remove_mark,
    renew_mark,
)
from windlass.operations.pages import OperationRecord, OperationState

#: At most this many operations may run. Starts at the same instant may exceed it a little.
MAX_ACTIVE: Final = 100

Transition = Callable[[OperationRecord], OperationRecord | None]


def pause_operation(engine: Engine, id: str, reason: str) -> OperationRecord:
    """Let a running operation wait. Another one stays as it is."""

    def paused(record: OperationRecord) -> OperationRecord | None:
        if record.state is not OperationState.RUNNING:
            return None
        return replace(record, state=OperationState.PAUSED, reason=reason)

    mark = read_mark(engine, id)
    record = _change(engine, id, paused)
    if record.state is OperationState.PAUSED:
        remove_mark(engine, id, mark)
    return record


def resume_operation(engine: Engine, id: str) -> OperationRecord:
    """Continue a paused operation. A running one stays as it is; one that has ended is refused."""

    def resumed(record: OperationRecord) -> OperationRecord | None:
        if record.state is OperationState.RUNNING:
            return None
        if record.state is not OperationState.PAUSED:
            raise OperationRefused(
                f"operation {id} is {record.state}, and only a paused one can be resumed. Start "
                "another one with the same filter: it leaves jobs alone that were changed."
            )
        require_room(engine)
        renew_mark(engine, id)  # if this process dies after the change, runners find the operation
        return replace(
            record,
            state=OperationState.RUNNING,
            reason="",
            replay=record.replay.resumed(),
            owner="",
            owner_until_ms=0,
        )

    record = _change(engine, id, resumed)
    renew_mark(engine, id)
    return record


def stop_operation(engine: Engine, id: str) -> OperationRecord:
    """End an operation that runs or pauses. One that has ended stays as it is."""

    def stopped(record: OperationRecord) -> OperationRecord | None:
        if record.state not in (OperationState.RUNNING, OperationState.PAUSED):
            return None
        return replace(record, state=OperationState.STOPPED)

    record = _change(engine, id, stopped)
    if record.state is OperationState.STOPPED:
        remove_mark(engine, id, read_mark(engine, id))
    return record


def require_room(engine: Engine) -> None:
    """Refuse another running operation if there are too many."""
    if len(engine.list_documents(ACTIVE, limit=MAX_ACTIVE)) >= MAX_ACTIVE:
        raise TooManyOperations(
            f"{MAX_ACTIVE} bulk operations are running, and no more are accepted. Wait for the "
            "end of some of them, or pause or stop them. If none proceeds, check that "
            "`windlass serve` or another `OperationRunner` runs."
        )


def _change(engine: Engine, id: str, transition: Transition) -> OperationRecord:
    """Change a record by compare-and-set, unless the transition returns None."""
    while True:
        document = get_operation(engine, id)
        record = decode_record(document)
        changed = transition(record)
        if changed is None:
            return record
        changed = replace(changed, updated_ms=read_clock(engine))
        if engine.change_documents([change_of(document, changed)])[0]:
            return changed
