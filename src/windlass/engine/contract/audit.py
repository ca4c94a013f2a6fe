"""The engine contract for the audit trail: who changed what, in the order of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from windlass.engine.contract.documents import is_plain_name
from windlass.errors import EngineError

#: An engine keeps about this many entries, the newest ones.
MAX_AUDIT: Final = 100_000
#: The body of an entry has at most this many bytes.
MAX_AUDIT_BYTES: Final = 8 * 1024
#: The id of an entry has at most this many characters.
MAX_AUDIT_ID: Final = 128


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the audit trail. Engines do not decode `body`. `id` is printable ASCII without
    spaces."""

    id: str  # sorts as text in the order of time, as `core.ids.new_id` makes it
    body: bytes
    at_ms: int = 0  # by the engine's clock, which sets it when the entry is added


def check_audit_entries(entries: Sequence[AuditEntry]) -> None:
    """Refuse entries that some engine cannot store. Every engine calls this function before it adds
    entries."""
    for entry in entries:
        if not is_plain_name(entry.id, MAX_AUDIT_ID):
            raise EngineError(
                f"Expected the id of an audit entry to be 1 to {MAX_AUDIT_ID} printable ASCII "
                f"characters without spaces, found {entry.id!r}. Make it with core.ids.new_id."
            )
        if len(entry.body) > MAX_AUDIT_BYTES:
            raise EngineError(
                f"The audit entry {entry.id} has {len(entry.body)} bytes, and may have at most "
                f"{MAX_AUDIT_BYTES}. Shorten it."
            )


class AuditVerbs(Protocol):
    """Add to the audit trail, and read it."""

    def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Add entries, and remove the oldest above `MAX_AUDIT`. A known id changes nothing. Entries
        that `check_audit_entries` refuses raise `EngineError`, and nothing is added."""

    def list_audit(self, before: str = "", limit: int = 100) -> list[AuditEntry]:
        """List entries whose ids sort before `before`, the last id first; empty for the newest."""
