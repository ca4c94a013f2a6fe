"""The audit trail: changes, and the callers that requested them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from windlass.http.resources.fields import Instant, PageLimit
from windlass.http.resources.scope import require_all_queues
from windlass.http.routes import VIEWERS, ApiRequest, route


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    #: The id of the last entry of the page before.
    before: Annotated[str, Meta(pattern=r"^[!-~]{1,128}$(?!\n)")] | None = None
    limit: PageLimit = 100


class AuditItem(msgspec.Struct, frozen=True, kw_only=True):
    """One change, as it was requested."""

    id: str
    at: Instant  # by the engine's clock
    actor: str  # such as token:deploy or cli:ann@host
    action: str  # such as http.pause_queue
    subject: str  # what was changed: the name of a queue, the id of a job
    details: Mapping[str, Any]  # redacted
    outcome: str


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of the audit trail, the newest first."""

    entries: tuple[AuditItem, ...]
    before: str | None  # of the next page; null at the end


@route("GET", "/v1/audit", roles=VIEWERS)
async def list_audit(call: ApiRequest, query: AuditQuery) -> AuditPage:
    """List the audit trail, the newest entry first.

    The engine keeps the newest 100,000 entries."""
    require_all_queues(call.principal, "To read the audit trail")
    audit = call.gateway.app.audit
    found = await call.gateway.call(audit.list, before=query.before or "", limit=query.limit)
    entries = tuple(
        AuditItem(
            id=one.id,
            at=one.at,
            actor=one.actor,
            action=one.action,
            subject=one.subject,
            details=one.details,
            outcome=one.outcome,
        )
        for one in found
    )
    is_full = len(entries) == query.limit
    return AuditPage(entries=entries, before=entries[-1].id if is_full else None)
