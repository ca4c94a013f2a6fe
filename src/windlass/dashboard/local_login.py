"""The login of `windlass dashboard`: a code that works once, and the token of its session.

1. The command opens a browser with the code in the URL. The code works once, within a minute.
2. `exchange` turns it into an access token that this process alone knows, and that ends with it.

The token is not stored in the engine: a stored one would close servers that are open to their
machine, and would outlive a killed process.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import time
from collections.abc import Callable
from threading import Lock
from typing import Final

#: How long the code can be used, in seconds.
CODE_S: Final = 60.0
#: How long the token works, in seconds.
TOKEN_S: Final = 12 * 3600.0

log: Final = logging.getLogger("windlass.http")


class LoginRefused(Exception):
    """The code does not open the dashboard. The text says why, and what to do."""


class LocalLogin:
    """One login of one user. Safe to use from many threads."""

    def __init__(self, actor: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.actor = actor  # the caller in the audit trail
        self.code = secrets.token_urlsafe(32)
        self._clock = clock
        self._lock = Lock()
        self._code_ends_s = clock() + CODE_S
        self._token: str | None = None
        self._token_ends_s = 0.0
        self._is_used = False

    def exchange(self, code: str) -> str:
        """Return the token for the code, once."""
        with self._lock:
            self._check(code)
            self._is_used = True
            self._token = f"wld_{secrets.token_urlsafe(32)}"
            self._token_ends_s = self._clock() + TOKEN_S
            return self._token

    def knows(self, text: str) -> bool:
        """Whether this is the token of the login."""
        with self._lock:
            token = self._token if self._clock() < self._token_ends_s else None
        return token is not None and hmac.compare_digest(token.encode(), text.encode())

    def end(self) -> None:
        """Refuse the code and the token from now on."""
        with self._lock:
            self._is_used, self._token = True, None

    def _check(self, code: str) -> None:
        again = "Start `windlass dashboard` again for a new one."
        if not hmac.compare_digest(self.code.encode(), code.encode()):
            raise LoginRefused(f"The code of this address is wrong. {again}")
        if self._is_used:
            log.warning("refused the one-time code of the dashboard: it was used before")
            raise LoginRefused(f"The code of this address was used before. {again}")
        if self._clock() >= self._code_ends_s:
            raise LoginRefused(
                f"The code of this address has expired: it works for {CODE_S:g} s. {again}"
            )
