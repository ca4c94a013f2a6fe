"""The documents of a copy, from which another process continues it.

1. The state, in the source: how far the copy is. A save fails after another process has saved, so
   that one process at a time continues a copy.
2. Lists of names, in the source: queues and schedules that were paused before the copy paused all.
3. A mark, in the target: which copy fills it, and whether that copy is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from windlass.core.ids import random_digits
from windlass.engine.contract import Document, DocumentChange, Engine
from windlass.errors import CopyRefused, DecodeError

KIND: Final = "copy"
#: Titles of the lists of names that were paused before the copy.
SOURCE_QUEUES: Final = "source-queues"
SOURCE_SCHEDULES: Final = "source-schedules"
TARGET_QUEUES: Final = "target-queues"
_STATE: Final = "state"
_MARK: Final = "target-"
#: A list of names takes several documents, each with about this many bytes.
_LIST_BYTES: Final = 32 * 1024
_PAGE: Final = 100
_VERSION: Final = 1


class Phase(StrEnum):
    """How far a copy is."""

    NAMING = "naming"  # the lists of names are written; nothing was changed
    COPYING = "copying"  # both sides are paused, and the copier copies jobs
    OPENING = "opening"  # all is copied: the target is resumed, and no job is copied any more
    DONE = "done"


class CopyState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a copy is, and where it continues."""

    id: str
    target: str  # its location, for messages
    phase: Phase = Phase.NAMING
    version: int = _VERSION
    is_walked: bool = False  # the first pass has ended
    #: The position of the first pass: the number of a walk, and the cursor of its next page.
    walk: int = 0
    cursor: str | None = None
    newest_ms: int = 0  # when the latest job was created that the first pass has seen
    #: Whether only jobs are copied that were created after an earlier, complete copy.
    is_late: bool = False
    #: The number of jobs that complete copies have left in the source. All of them were created
    #: before `since_ms`.
    left: int = 0
    since_ms: int | None = None


class StoredState:
    """The state of the copy of a source, as this process has read or saved it last."""

    def __init__(self, source: Engine, document: Document) -> None:
        self._source = source
        self._revision = document.revision
        self.state = _decode_state(document)

    @classmethod
    def load(cls, source: Engine) -> StoredState | None:
        (document,) = source.get_documents(KIND, [_STATE])
        return None if document is None else cls(source, document)

    @classmethod
    def create(cls, source: Engine, state: CopyState) -> StoredState:
        body = msgspec.json.encode(state)
        revision = _change(source, _STATE, "", body)
        return cls(source, Document(kind=KIND, key=_STATE, revision=revision, body=body))

    def save(self, **changes: Any) -> None:
        """Change the state. Raises `CopyRefused` if another process has changed it."""
        self.replace(replace(self.state, **changes))

    def replace(self, state: CopyState) -> None:
        body = msgspec.json.encode(state)
        self._revision = _change(self._source, _STATE, self._revision, body)
        self.state = state

    def remove(self) -> None:
        _change(self._source, _STATE, self._revision, None)


def target_of_copy(engine: Engine) -> str | None:
    """The location to which the jobs of this engine are or were copied, if it is a source."""
    try:
        stored = StoredState.load(engine)
    except DecodeError:  # of a newer windlass
        return "another engine"
    return None if stored is None else stored.state.target


def _decode_state(document: Document) -> CopyState:
    try:
        state = msgspec.json.decode(document.body, type=CopyState)
    except msgspec.DecodeError as error:
        raise DecodeError(
            f"The state of a copy cannot be read: {error}. Continue the copy with the version of "
            "windlass that began it, or with a newer one."
        ) from error
    if state.version > _VERSION:
        raise DecodeError(
            "The state of a copy was stored by a newer windlass. Continue the copy with that "
            "version."
        )
    return state


# ---------------------------------------------------------------------------------- lists of names


def write_names(source: Engine, title: str, names: Iterable[str]) -> None:
    """Store a list in place of an earlier one with the same title."""
    known = {document.key: document.revision for document in _documents(source, f"{title}-")}
    for number, chunk in enumerate(_chunks(sorted(names))):
        key = f"{title}-{number:05}"
        _change(source, key, known.pop(key, ""), msgspec.json.encode(chunk))
    for key, revision in known.items():
        _change(source, key, revision, None)


def read_names(source: Engine, title: str) -> frozenset[str]:
    """Read a list; empty if there is none."""
    return frozenset(
        name
        for document in _documents(source, f"{title}-")
        for name in msgspec.json.decode(document.body, type=list[str])
    )


def _chunks(names: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    size = 0
    for name in names:
        if size > _LIST_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(name)
        size += len(name.encode()) + len('"",')
    if chunk:
        yield chunk


# ------------------------------------------------------------------------------------------- marks


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Tells in the target which source it is copied from."""

    source: str  # its location, for messages
    is_done: bool = False


def read_marks(engine: Engine) -> dict[str, Mark]:
    """Read the marks of a target by the ids of their copies."""
    return {
        document.key.removeprefix(_MARK): msgspec.json.decode(document.body, type=Mark)
        for document in _documents(engine, _MARK)
    }


def write_mark(target: Engine, copy_id: str, mark: Mark | None) -> None:
    """Store the mark of a copy; None removes it."""
    key = f"{_MARK}{copy_id}"
    (known,) = target.get_documents(KIND, [key])
    body = None if mark is None else msgspec.json.encode(mark)
    _change(target, key, "" if known is None else known.revision, body)


# --------------------------------------------------------------------------------------- documents


def _documents(engine: Engine, prefix: str) -> Iterator[Document]:
    after = ""
    while page := engine.list_documents(KIND, after, _PAGE):
        yield from (document for document in page if document.key.startswith(prefix))
        after = page[-1].key


def _change(engine: Engine, key: str, expected: str, body: bytes | None) -> str:
    """Change a document, and return its new revision."""
    change = DocumentChange(
        kind=KIND, key=key, expected=expected, revision=random_digits(26), body=body
    )
    if not engine.change_documents([change])[0]:
        raise CopyRefused(
            f"Another process has continued this copy meanwhile, at {engine.location}. Let that "
            "process finish, or end it and run this command again."
        )
    return change.revision
