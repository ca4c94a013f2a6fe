"""One outcome of each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from windlass.core.states import Reason
from windlass.engine.contract import (
    Buried,
    Outcome,
    Progressed,
    Released,
    Retried,
    Snoozed,
    Succeeded,
    Unroutable,
)

#: kind -> an outcome for the job and the token given
OUTCOMES: Final[dict[str, Callable[[str, str], Outcome]]] = {
    "succeeded": lambda id, token: Succeeded(
        id=id, token=token, result=b"result", result_ttl_ms=60_000
    ),
    "retried": lambda id, token: Retried(id=id, token=token, delay_ms=100, error=b"boom"),
    "buried": lambda id, token: Buried(id=id, token=token, reason=Reason.REJECTED, error=b"no"),
    "released": lambda id, token: Released(id=id, token=token, started=True),
    "snoozed": lambda id, token: Snoozed(id=id, token=token, delay_ms=100),
    "unroutable": lambda id, token: Unroutable(id=id, token=token),
    "progressed": lambda id, token: Progressed(id=id, token=token, progress=b"half"),
}
