"""Documents and the audit trail.

1. Documents: read and list them, and apply changes if the expected revision is current.
2. Audit: add entries, remove the oldest, and list the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from windlass.engine.contract import (
    MAX_AUDIT,
    MAX_DOCUMENTS,
    AuditEntry,
    Document,
    DocumentChange,
    too_many_documents,
)
from windlass.engine.sql.statements import Row, Statements
from windlass.engine.sql.transaction import SqlTransaction

#: No printable character sorts after this one.
_AFTER_ALL_IDS: Final = "\x7f"


def get(db: Statements, kind: str, keys: Sequence[str]) -> list[Document | None]:
    found = db.rows("read_documents", kind, db.array(keys))
    documents = {row[0]: _to_document(kind, row) for row in found}
    return [documents.get(key) for key in keys]


def list_by_key(db: Statements, kind: str, after: str, limit: int) -> list[Document]:
    found = db.rows("list_documents", kind, after, max(0, limit))
    return [_to_document(kind, row) for row in found]


def _to_document(kind: str, row: Row) -> Document:
    key, revision, body = row
    return Document(kind=kind, key=key, revision=revision, body=body)


class DocumentChanges:
    """Changes of one transaction, and the number of documents of each kind after them."""

    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx
        self._numbers: dict[str, int] = {}

    def apply(self, change: DocumentChange) -> bool:
        tx, kind, key = self._tx, change.kind, change.key
        stored: str | None = tx.first("find_document", kind, key)
        if stored is None and change.body is None:
            return True
        if (stored or "") != change.expected:
            # An earlier call with this revision applied the change; a removal leaves no revision.
            return change.body is not None and stored == change.revision
        if change.body is None:
            self._numbers[kind] = self._count(kind) - 1
            tx.run("delete_document", kind, key)
            return True
        if stored is None:
            self._numbers[kind] = self._count(kind) + 1
            if self._numbers[kind] > MAX_DOCUMENTS:
                raise too_many_documents(kind)
        tx.run("save_document", kind, key, change.revision, change.body)
        return True

    def _count(self, kind: str) -> int:
        """Count once per transaction: a count reads all documents of a kind."""
        if kind not in self._numbers:
            self._tx.lock("documents", kind)
            self._numbers[kind] = int(self._tx.first("count_documents", kind))
        return self._numbers[kind]


def change(tx: SqlTransaction, changes: Sequence[DocumentChange]) -> list[bool]:
    names = [("document", change.kind, change.key) for change in changes]
    kinds = {change.kind for change in changes}
    # The number of one kind is locked later, and only by changes that count.
    tx.lock_all([*names, *(("documents", kind) for kind in kinds if len(kinds) > 1)])
    return list(map(DocumentChanges(tx).apply, changes))


def add_audit(tx: SqlTransaction, entries: Sequence[AuditEntry]) -> None:
    for entry in entries:
        tx.run("add_audit", entry.id, tx.now_ms, entry.body)
    tx.run("trim_audit", MAX_AUDIT)


def list_audit(db: Statements, before: str, limit: int) -> list[AuditEntry]:
    found = db.rows("list_audit", before or _AFTER_ALL_IDS, max(0, limit))
    return [AuditEntry(id=id, at_ms=at_ms, body=body) for id, at_ms, body in found]
