"""The audit trail of an engine, `app.audit`: changes with their actor and time.

1. `AuditRecord` is an entry as readers see it, with the time of the engine.
2. `AuditLog` adds entries and lists them, the newest first. `find` reads pages until it has enough
   entries of an actor or a time.
3. Details are redacted by the setting `redact`, and shortened to fit into an entry: long texts and
   lists first, then as a whole.

The engine keeps the newest 100,000 entries. The HTTP API and the commands that change something add
them; the methods of an app do not.
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from windlass.core.durations import instant
from windlass.core.ids import new_id
from windlass.core.redaction import Redactor
from windlass.engine.contract import MAX_AUDIT_BYTES, AuditEntry, Engine
from windlass.settings import matches
from windlass.twins import Steps, act, twins

if TYPE_CHECKING:
    from windlass.app import Windlass

#: The outcomes of a change.
OK: Final = "ok"
REFUSED: Final = "refused"  # nothing was changed: the state of the subject did not allow it
FAILED: Final = "failed"  # an error occurred; a part may be changed

#: One call of the engine reads at most this many entries.
PAGE: Final = 200
#: The longest texts of an entry, in characters.
_MAX_TEXT: Final = 256
#: How to shorten details that do not fit: the longest text, and the longest list or dict.
_CUTS: Final = ((1_000, 250), (1_000, 100), (100, 50), (40, 10))


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the audit trail."""

    id: str  # sorts by time; `before` of a list takes it
    at: datetime  # by the engine's clock
    actor: str  # such as cli:ann@host, or token:deploy
    action: str  # such as queue.pause
    subject: str  # what was changed: the name of a queue, the id of a job
    details: Mapping[str, Any]
    outcome: str  # ok, refused or failed; requested if it was written before the change


class _StoredAuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of an entry."""

    actor: str
    action: str
    subject: str = ""
    details: dict[str, Any] = {}
    outcome: str = OK


class AuditLog:
    """The audit trail of an engine."""

    def __init__(self, app: Windlass) -> None:
        self._app = app

    @twins
    def add(
        self,
        *,
        actor: str,
        action: str,
        subject: str = "",
        details: Mapping[str, Any] | None = None,
        outcome: str = OK,
    ) -> Steps[str]:
        """Add an entry, and return its id. Details are redacted, and shortened if necessary."""
        body = pack_entry(self._app.redactor, actor, action, subject, details or {}, outcome)
        entry = AuditEntry(id=new_id(time.time_ns() // 1_000_000), body=body)
        yield from act(_add, entry)
        return entry.id

    aadd = add.awaited

    @twins
    def list(self, *, before: str = "", limit: int = 100) -> Steps[builtins.list[AuditRecord]]:
        """The newest entries, or the newest that are older than the entry with the id `before`."""
        found: builtins.list[AuditRecord] = []
        while len(found) < limit:
            page = yield from act(read_audit, before, min(PAGE, limit - len(found)))
            if not page:
                break
            found += page
            before = page[-1].id
        return found

    alist = list.awaited

    @twins
    def find(
        self,
        *,
        actor: str = "",
        since: datetime | None = None,
        before: str = "",
        limit: int = 100,
    ) -> Steps[builtins.list[AuditRecord]]:
        """The newest entries of an actor, or since an instant. `actor` may have `*` for any text.

        Entries sort by the clocks of the processes that added them, which may differ a little. So
        the search ends after a whole page of older entries, not at the first one."""
        found: builtins.list[AuditRecord] = []
        while len(found) < limit:
            page = yield from act(read_audit, before, PAGE)
            recent = [one for one in page if since is None or one.at >= since]
            found += [one for one in recent if not actor or matches(actor, one.actor)]
            if not recent:
                break
            before = page[-1].id
        return found[:limit]

    afind = find.awaited


def _add(engine: Engine, entry: AuditEntry) -> None:
    engine.add_audit([entry])


def read_audit(engine: Engine, before: str, limit: int) -> builtins.list[AuditRecord]:
    """One page of entries, the newest first."""
    return [_record(entry) for entry in engine.list_audit(before, limit)]


def _record(entry: AuditEntry) -> AuditRecord:
    try:
        stored = msgspec.json.decode(entry.body, type=_StoredAuditEntry)
    except msgspec.DecodeError as error:
        stored = _StoredAuditEntry(actor="", action="(unreadable)", details={"error": str(error)})
    return AuditRecord(
        id=entry.id,
        at=instant(entry.at_ms),
        actor=stored.actor,
        action=stored.action,
        subject=stored.subject,
        details=stored.details,
        outcome=stored.outcome,
    )


def pack_entry(
    redactor: Redactor,
    actor: str,
    action: str,
    subject: str,
    details: Mapping[str, Any],
    outcome: str,
) -> bytes:
    """The body of an entry, of at most `MAX_AUDIT_BYTES`."""
    shown: dict[str, Any] = redactor.redact(details)
    entry = _StoredAuditEntry(
        actor=_cut_text(actor, _MAX_TEXT),
        action=_cut_text(action, _MAX_TEXT),
        subject=_cut_text(subject, _MAX_TEXT),
        details=shown,
        outcome=_cut_text(outcome, _MAX_TEXT),
    )
    body = _encode(entry)
    size = len(body)
    for text, number in _CUTS:
        if len(body) <= MAX_AUDIT_BYTES:
            return body
        body = _encode(msgspec.structs.replace(entry, details=_cut(shown, text, number)))
    if len(body) > MAX_AUDIT_BYTES:
        body = _encode(msgspec.structs.replace(entry, details={"left_out": f"{size:,} bytes"}))
    return body


_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


def _cut(value: Any, text: int, number: int) -> Any:
    """Shorten long texts, and lists and dicts with many parts. A list keeps its last part."""
    if isinstance(value, str):
        return _cut_text(value, text)
    if isinstance(value, dict):
        kept = list(value.items())[:number]
        shorter = {_cut_text(str(key), text): _cut(part, text, number) for key, part in kept}
        return shorter | ({"...": len(value) - number} if len(value) > number else {})
    if isinstance(value, list):
        if len(value) <= number:
            return [_cut(part, text, number) for part in value]
        *first, last = [_cut(part, text, number) for part in [*value[: number - 1], value[-1]]]
        return [*first, f"... {len(value) - number} more", last]
    return value


def _cut_text(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
