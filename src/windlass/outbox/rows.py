"""The rows of an outbox, as relays and operators read them.

Each object has one connection of its own, and is for one thread. A call that fails raises
`EngineUnavailable`, or `EngineError` if a repeat does not help; the next call connects again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from windlass.errors import EngineError, FormatTooNew
from windlass.outbox.tables import newest
from windlass.outbox.url import OutboxUrl

#: How long a call may take, in seconds.
TIMEOUT_S: Final = 5.0
#: A relay has rows for at most this long, in milliseconds: then other relays may take them. A relay
#: takes rows, puts them into the engine within the time limit of one call, and settles them.
LEASE_MS: Final = 15_000
#: The state of an outbox counts at most this many rows.
MOST_COUNTED: Final = 10_000


class OutboxRow(msgspec.Struct, frozen=True):
    """A row that a relay has taken."""

    position: int
    id: str
    body: bytes
    age_ms: int  # since the insert, by the clock of the database
    tries: int  # relays that the engine refused before


class Postponed(msgspec.Struct, frozen=True):
    """A row that stays in the outbox, because the engine refused its job."""

    position: int
    delay_ms: int
    error: str


class RefusedRow(msgspec.Struct, frozen=True):
    id: str
    tries: int
    error: str


class OutboxState(msgspec.Struct, frozen=True, kw_only=True):
    """What waits in an outbox."""

    waiting: int  # rows, at most `MOST_COUNTED`
    oldest_ms: int  # the age of the first row that was never refused, or 0
    refused: int  # those of the rows that the engine refused
    first_refused: RefusedRow | None


class OutboxRows(Protocol):
    def take(self, limit: int, most_bytes: int) -> list[OutboxRow]:
        """Take the next rows that no other relay has, in order: at most `limit`, with about
        `most_bytes`, or a single larger one. `settle` or `give_back` must follow."""

    def settle(self, done: Sequence[int], postponed: Sequence[Postponed]) -> None:
        """Delete rows, by position, and postpone others. Give back the rest."""

    def give_back(self) -> None:
        """Let other relays take the rows at once: the engine is away."""

    def state(self) -> OutboxState: ...

    def check_format(self) -> None:
        """Raise `EngineError` unless the tables are there, in the format of this version."""

    def migrate(self) -> int:
        """Make the tables, or bring them to the format of this version; return that format."""

    def close(self) -> None: ...


def cut(sizes: Sequence[int], most_bytes: int) -> int:
    """How many rows of these sizes to take: the first one at any size."""
    total = 0
    for number, size in enumerate(sizes):
        total += size
        if total > most_bytes and number:
            return number
    return len(sizes)


def check_version(found: int | None, url: OutboxUrl) -> None:
    """Refuse an outbox without tables, or in another format."""
    expected = newest(url)
    if found is None:
        raise missing_tables(url)
    if found > expected:
        raise FormatTooNew(
            f"The tables of the outbox in {url.location} have the format {found}, and this "
            f"windlass knows {expected}. Upgrade windlass here.",
            location=url.location,
        )
    if found < expected:
        raise EngineError(
            f"The tables of the outbox in {url.location} have the format {found}, and this "
            f"windlass needs {expected}. Run `windlass migrate`.",
            location=url.location,
        )


def missing_tables(url: OutboxUrl) -> EngineError:
    return EngineError(
        f"Expected the tables of the outbox in {url.location} ({url.namespace}), found none. Run "
        "`windlass migrate` once, with a role that may create them.",
        location=url.location,
    )
