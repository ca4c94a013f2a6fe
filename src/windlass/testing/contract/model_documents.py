"""The reference model of documents and of the audit trail: two dicts.

The first caller with the current revision changes a document (optimistic locking). Entries of the
audit trail never change, and the oldest are removed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from msgspec.structs import replace

from windlass.engine.contract import (
    MAX_AUDIT,
    MAX_DOCUMENTS,
    AuditEntry,
    Document,
    DocumentChange,
    check_audit_entries,
    check_document_changes,
    too_many_documents,
)


class DocumentModel(ABC):
    @property
    def documents(self) -> dict[tuple[str, str], Document]:
        found: dict[tuple[str, str], Document] = self.__dict__.setdefault("_documents", {})
        return found

    @property
    def audit(self) -> dict[str, AuditEntry]:
        found: dict[str, AuditEntry] = self.__dict__.setdefault("_audit", {})
        return found

    @abstractmethod
    def clock_ms(self) -> int: ...

    def get_documents(self, kind: str, keys: Sequence[str]) -> list[Document | None]:
        return [self.documents.get((kind, key)) for key in keys]

    def list_documents(self, kind: str, after: str = "", limit: int = 100) -> list[Document]:
        named = [one for one in self.documents.values() if one.kind == kind and one.key > after]
        return sorted(named, key=lambda one: one.key)[: max(0, limit)]

    def change_documents(self, changes: Sequence[DocumentChange]) -> list[bool]:
        check_document_changes(changes)
        before = dict(self.documents)
        done = []
        for change in changes:
            done.append(self._change_document(change))
            if self._is_over(change.kind):
                self.__dict__["_documents"] = before
                raise too_many_documents(change.kind)
        return done

    def _change_document(self, change: DocumentChange) -> bool:
        name = (change.kind, change.key)
        known = self.documents.get(name)
        if change.body is None:
            if known is not None and known.revision != change.expected:
                return False
            self.documents.pop(name, None)
            return True
        revision = "" if known is None else known.revision
        if revision == change.expected:
            self.documents[name] = Document(
                kind=change.kind, key=change.key, revision=change.revision, body=change.body
            )
        return revision in (change.expected, change.revision)

    def _is_over(self, kind: str) -> bool:
        return sum(name[0] == kind for name in self.documents) > MAX_DOCUMENTS

    def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        check_audit_entries(entries)
        for entry in entries:
            self.audit.setdefault(entry.id, replace(entry, at_ms=self.clock_ms()))
        for id in sorted(self.audit)[: max(0, len(self.audit) - MAX_AUDIT)]:
            del self.audit[id]

    def list_audit(self, before: str = "", limit: int = 100) -> list[AuditEntry]:
        ids = sorted((id for id in self.audit if not before or id < before), reverse=True)
        return [self.audit[id] for id in ids[: max(0, limit)]]
