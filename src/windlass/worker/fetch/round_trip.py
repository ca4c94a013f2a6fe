"""One round trip of the fetcher, and the interface to the child that owns the fetcher."""

from __future__ import annotations

from typing import NoReturn, Protocol

import msgspec

from windlass.engine.contract import Outcome, Plan


class Owner(Protocol):
    """The child, as the fetcher sees it."""

    def new_session(self) -> str:
        """Start a session, which the supervisor keeps alive from now on."""

    def see_suspects(self) -> None:
        """Report that jobs wait that must run alone."""

    def rest(self, session: str, nonce: str | None) -> None:
        """Report an idle child. A put may claim for it under the nonce, unless that is empty. None
        reports a busy child."""

    def note_loss(self) -> None:
        """Note that the running jobs were reassigned to other workers."""

    def end(self) -> None:
        """End this process: everything is reported."""

    def end_at_once(self) -> NoReturn:
        """End this process at once, also while jobs run."""


class RoundTrip(msgspec.Struct, frozen=True):
    """One round trip. Without room it claims nothing and has no nonce."""

    session: str
    outcomes: list[Outcome]
    nonce: str = ""
    room: int = 0
    plan: Plan = Plan()
    is_last: bool = False  # the nonce was given to the waiter
