"""What the fetcher and its parts have in common: one round trip, and what is asked of the child."""

from __future__ import annotations

from typing import NoReturn, Protocol

import msgspec

from windlass.engine.contract import Outcome, Plan


class Owner(Protocol):
    """What the fetcher asks of its child."""

    def new_session(self) -> str:
        """A fresh session, which the supervisor keeps alive from now on."""

    def see_suspects(self) -> None:
        """Jobs are waiting that must run alone."""

    def rest(self, session: str, nonce: str | None) -> None:
        """This child is idle, and a put may claim for it under the nonce, unless that is empty;
        with None it is not idle any more."""

    def note_loss(self) -> None:
        """What runs has been given to others."""

    def end(self) -> None:
        """All is reported, and nothing more will be claimed: the end of this process."""

    def end_at_once(self) -> NoReturn:
        """End the process, whatever runs in it."""


class Call(msgspec.Struct, frozen=True):
    """One round trip. With no room nothing is claimed, and the nonce is not used."""

    session: str
    outcomes: list[Outcome]
    nonce: str = ""
    room: int = 0
    plan: Plan = Plan()
    is_last: bool = False  # the nonce was given to the waiter
