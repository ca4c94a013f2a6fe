"""Remove bulk operations that ended long ago, and the oldest of too many.

A paused operation is removed like one that has ended: after seven days it cannot be resumed.
"""

from __future__ import annotations

from typing import Final

from windlass.engine.clock import read_clock
from windlass.engine.contract import MAX_DOCUMENT_CHANGES, Document, DocumentChange, Engine
from windlass.operations.documents import KIND, readable_record
from windlass.operations.pages import OperationState

#: An operation that does not run is kept for this long, and at most this many are kept.
KEPT_MS: Final = 7 * 24 * 60 * 60 * 1000
MAX_KEPT: Final = 1_000


def remove_old(engine: Engine) -> None:
    after, kept = "", 0
    now_ms = read_clock(engine)
    while page := engine.list_documents(KIND, after, MAX_DOCUMENT_CHANGES):
        removed = []
        for document in page:
            record = readable_record(document)
            if record is None or record.state is OperationState.RUNNING:
                continue
            kept += 1
            if kept > MAX_KEPT or now_ms - record.updated_ms > KEPT_MS:
                removed.append(_removal(document))
        if removed:
            engine.change_documents(removed)
        after = page[-1].key


def _removal(document: Document) -> DocumentChange:
    return DocumentChange(
        kind=KIND,
        key=document.key,
        expected=document.revision,
        revision=f"removed-{document.revision}",
        body=None,
    )
