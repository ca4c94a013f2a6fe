"""The documents of bulk operations: their ids, their records, and the marks of those that run.

1. `operation_id`: later operations have smaller ids, so that a list begins with the newest.
2. `decode_record` and `change_of` read a record, and replace it by compare-and-set.
3. A mark for each operation that runs, so that a runner need not read those that have ended. A
   process that saw an operation paused does not remove the mark of its resumption, which has
   another revision.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from windlass.core.ids import created_ms_of, new_id, random_digits
from windlass.engine.contract import Document, DocumentChange, Engine
from windlass.errors import DecodeError, OperationNotFound
from windlass.operations.pages import OperationRecord

KIND: Final = "operation"
#: The kind of the marks.
ACTIVE: Final = "operation-active"
#: The largest number in the first part of an id.
_LAST_MS: Final = (1 << 50) - 1

log: Final = logging.getLogger("windlass.operations")


def operation_id(created_ms: int) -> str:
    """Make the id of an operation."""
    return new_id(_LAST_MS - created_ms)


def started_ms_of(id: str) -> int:
    """When an operation was started, by its id."""
    return _LAST_MS - created_ms_of(id)


# ---------------------------------------------------------------------------------------- records


def get_operation(engine: Engine, id: str) -> Document:
    """The document of an operation. Raises `OperationNotFound`."""
    (document,) = engine.get_documents(KIND, [id])
    if document is None:
        raise OperationNotFound(id, engine.location)
    return document


def change_of(document: Document, record: OperationRecord) -> DocumentChange:
    """The change that replaces the record in a document."""
    return DocumentChange(
        kind=KIND,
        key=document.key,
        expected=document.revision,
        revision=random_digits(26),
        body=msgspec.json.encode(record),
    )


def decode_record(document: Document) -> OperationRecord:
    """Read the record of an operation. Raises `DecodeError` if a newer version wrote it."""
    try:
        return msgspec.json.decode(document.body, type=OperationRecord)
    except msgspec.DecodeError as error:
        raise DecodeError(f"operation {document.key} cannot be read: {error}") from error


def readable_record(document: Document) -> OperationRecord | None:
    """The record of an operation; None for one that cannot be read."""
    try:
        return decode_record(document)
    except DecodeError as error:
        log.error("ignoring unreadable operation: %s", error)
        return None


# ------------------------------------------------------------------------------------------ marks


def new_mark(id: str) -> DocumentChange:
    """The mark of a new operation."""
    return DocumentChange(kind=ACTIVE, key=id, expected="", revision=id, body=b"{}")


def read_mark(engine: Engine, id: str) -> str:
    """The revision of the mark of an operation; empty without one."""
    (mark,) = engine.get_documents(ACTIVE, [id])
    return "" if mark is None else mark.revision


def renew_mark(engine: Engine, id: str) -> None:
    """Give an operation a mark in a new revision, whether or not it has one."""
    while True:
        change = DocumentChange(
            kind=ACTIVE,
            key=id,
            expected=read_mark(engine, id),
            revision=random_digits(26),
            body=b"{}",
        )
        if engine.change_documents([change])[0]:
            return


def remove_mark(engine: Engine, id: str, revision: str) -> None:
    """Remove the mark of an operation that has ended or pauses, unless it was renewed."""
    if revision:
        mark = DocumentChange(
            kind=ACTIVE, key=id, expected=revision, revision=random_digits(26), body=None
        )
        engine.change_documents([mark])
