"""The caller itself: what the dashboard asks first."""

from __future__ import annotations

import msgspec

from windlass.access_tokens import RIGHTS, Right, Role
from windlass.core import installed_version
from windlass.http.routes import IDENTIFIED, OPERATORS, VIEWERS, ApiRequest, route


class MeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The caller, and what it may do."""

    name: str  # as in the audit trail
    role: Role
    queues: tuple[str, ...]  # names or patterns; every queue when empty
    rights: tuple[Right, ...]
    may_change: bool  # whether it may change jobs, queues and schedules
    logged_in: bool  # by the cookie of the dashboard, so that it can log out
    version: str  # of windlass
    engine: str | None  # where the jobs are stored, without secrets; null for other roles


@route("GET", "/v1/me", roles=IDENTIFIED)
async def read_caller(call: ApiRequest) -> MeAnswer:
    """Read who you are, and what you may do.

    Viewers, operators and admins also learn where the jobs are stored."""
    caller = call.principal
    return MeAnswer(
        name=caller.name,
        role=caller.role,
        queues=caller.queues,
        rights=tuple(right for right, roles in RIGHTS.items() if caller.role in roles),
        may_change=caller.role in OPERATORS,
        logged_in=caller.has_cookie,
        version=installed_version(),
        engine=call.gateway.app.engine.location if caller.role in VIEWERS else None,
    )
