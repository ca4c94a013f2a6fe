"""The engine contract for documents: small records by name, which change by compare-and-set. Access
tokens and bulk operations are documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from windlass.errors import EngineError

#: An engine keeps at most this many documents of one kind.
MAX_DOCUMENTS: Final = 10_000
#: The body of a document has at most this many bytes.
MAX_DOCUMENT_BYTES: Final = 64 * 1024
#: One call of `change_documents` has at most this many changes, because it is one step.
MAX_DOCUMENT_CHANGES: Final = 100
#: The kind of a document has at most this many characters.
MAX_KIND: Final = 32
#: A key, and a revision, has at most this many characters.
MAX_DOCUMENT_KEY: Final = 128
_PRINTABLE: Final = re.compile(r"[!-~]+")


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document. Engines do not decode `body`. `kind`, `key` and `revision` are printable ASCII
    without spaces, of at most `MAX_KIND` and `MAX_DOCUMENT_KEY` characters."""

    kind: str
    key: str
    revision: str
    body: bytes


class DocumentChange(msgspec.Struct, frozen=True, kw_only=True):
    """A compare-and-set of one document. The change applies only if the document is still in the
    revision `expected`. An empty `expected` means that the document must not exist yet."""

    kind: str
    key: str
    expected: str
    revision: str  # unique: identifies a repeated change
    body: bytes | None  # None removes the document


def is_plain_name(text: str, most: int) -> bool:
    """Return whether a text is printable ASCII without spaces, not empty, and not too long."""
    return len(text) <= most and _PRINTABLE.fullmatch(text) is not None


def check_document_changes(changes: Sequence[DocumentChange]) -> None:
    """Refuse changes that some engine cannot store. Every engine calls this function before it
    applies changes."""
    if len(changes) > MAX_DOCUMENT_CHANGES:
        raise EngineError(
            f"Expected at most {MAX_DOCUMENT_CHANGES} document changes in one call, found "
            f"{len(changes)}. Split them over several calls."
        )
    for change in changes:
        _check_change(change)


def _check_change(change: DocumentChange) -> None:
    names = [("kind", change.kind, MAX_KIND), ("key", change.key, MAX_DOCUMENT_KEY)]
    if change.body is not None:
        names.append(("revision", change.revision, MAX_DOCUMENT_KEY))
    for name, text, most in names:
        if not is_plain_name(text, most):
            raise EngineError(
                f"Expected the {name} of a document to be 1 to {most} printable ASCII characters "
                f"without spaces, found {text!r}. Choose another {name}."
            )
    size = len(change.body or b"")
    if size > MAX_DOCUMENT_BYTES:
        raise EngineError(
            f"The document {change.key} of kind {change.kind} has {size} bytes, and may have at "
            f"most {MAX_DOCUMENT_BYTES}. Split it into several documents."
        )


def too_many_documents(kind: str) -> EngineError:
    """Make the error for a new document beyond the limit of its kind."""
    return EngineError(
        f"There are {MAX_DOCUMENTS} documents of kind {kind}, and no more are possible. Remove "
        "some of them first."
    )


class DocumentVerbs(Protocol):
    """Read and change documents."""

    def get_documents(self, kind: str, keys: Sequence[str]) -> list[Document | None]: ...

    def list_documents(self, kind: str, after: str = "", limit: int = 100) -> list[Document]:
        """List the next documents of a kind, in the order of their keys, whose keys sort after
        `after`."""

    def change_documents(self, changes: Sequence[DocumentChange]) -> list[bool]:
        """Apply changes in turn, each completely or not at all. True means that this call, or an
        earlier call with the same revision, applied the change, or that the document to remove does
        not exist. A new document beyond `MAX_DOCUMENTS`, or changes that `check_document_changes`
        refuses, raise `EngineError`, and nothing is changed."""
