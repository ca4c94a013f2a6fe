"""The access log: one line per request, through the logger `windlass.http`.

A line has the path without the query, which may contain values of users, and never a token.
"""

from __future__ import annotations

import logging
from typing import Final

log: Final = logging.getLogger("windlass.http")

#: Probes are logged at debug: they come every few seconds.
_PROBES: Final = frozenset({"/healthz", "/readyz"})


def log_access(
    method: str, path: str, status: int, took_s: float, caller: str, client: str | None
) -> None:
    """Log a request at info; probes at debug, failures of the server at error."""
    level = logging.DEBUG if path in _PROBES else logging.INFO
    if status >= 500 and status != 503:
        level = logging.ERROR
    log.log(
        level,
        "%s %s %d in %.1f ms, %s at %s",
        method,
        path,
        status,
        took_s * 1000,
        caller,
        client or "a Unix socket",
        extra={
            "method": method,
            "path": path,
            "status": status,
            "took_ms": round(took_s * 1000, 1),
            "caller": caller,
            "client": client,
        },
    )
