"""Audit of requests that change something.

The entry is written before the handler acts: no change lacks its entry, even if the server dies in
between. So an entry has the request and its caller. If the trail cannot be written, the request
fails and nothing is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from windlass.http.access import Principal
from windlass.http.routes import Route

if TYPE_CHECKING:
    from windlass.app import Windlass

#: The outcome of an entry that is written before the change.
REQUESTED: Final = "requested"
#: Arguments of jobs are not copied to the trail, where their retention is another one.
_LEFT_OUT: Final = ("args", "kwargs")


async def audit_request(
    app: Windlass, principal: Principal, route: Route, given: dict[str, Any]
) -> None:
    """Add an entry for a request that passed all checks."""
    path = _plain(given.get("path"))
    body = _plain(given.get("body"))
    await app.audit.aadd(
        actor=principal.name,
        action=f"http.{route.name}",
        subject=next((str(value) for value in path.values()), ""),
        details=body,
        outcome=REQUESTED,
    )


def _plain(given: Any) -> dict[str, Any]:
    """The given fields of a struct."""
    if given is None:
        return {}
    fields = {
        name: "[left out]" if name in _LEFT_OUT else value
        for name, value in msgspec.structs.asdict(given).items()
        if value is not None
    }
    plain: dict[str, Any] = msgspec.to_builtins(fields)
    return plain
