"""The rows of an outbox, for relays and operators.

1. `OutboxRows` takes, settles and counts rows. `postgresql` and `sqlite` have its subclasses, each
   with one connection, for one thread.
2. A call that fails raises `EngineUnavailable`, or `EngineError` if a repeat does not help. The
   next call connects again.
3. The functions at the end are the errors that both databases raise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import msgspec

from windlass.errors import EngineError, EngineUnavailable, FormatTooNew
from windlass.outbox.tables import migrations, newest, statements
from windlass.outbox.url import OutboxUrl

#: How long a call may take, in seconds.
TIMEOUT_S: Final = 5.0
#: A relay keeps rows for at most this long, in milliseconds. Then other relays may take them.
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
    """A row that the engine has refused, for operators."""

    id: str
    tries: int
    error: str


class OutboxState(msgspec.Struct, frozen=True, kw_only=True):
    """What waits in an outbox."""

    waiting: int  # rows, at most `MOST_COUNTED`
    oldest_ms: int  # the age of the first row that was never refused, or 0
    refused: int  # rows that the engine refused, among those that wait
    first_refused: RefusedRow | None


class OutboxRows(ABC):
    """One connection to an outbox, which opens at the first call."""

    def __init__(self, url: OutboxUrl) -> None:
        self._url = url
        self._statements = statements(url)

    # -------------------------------------------------------------------------------- for relays

    @abstractmethod
    def take(self, limit: int, most_bytes: int) -> list[OutboxRow]:
        """Take the next rows that no other relay has, in order: at most `limit`, with about
        `most_bytes`, or a single larger one. `settle` or `give_back` must follow."""

    @abstractmethod
    def settle(self, done: Sequence[int], postponed: Sequence[Postponed]) -> None:
        """Delete rows, by position, and postpone others. Give back the rest."""

    @abstractmethod
    def give_back(self) -> None:
        """Let other relays take the rows at once: the engine is away."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection, which gives back all rows."""

    def _find_next(self, limit: int, most_bytes: int) -> list[int]:
        """Return the positions of the next rows to take."""
        found = self._rows("next_fresh", limit)
        if len(found) < limit:
            found += self._rows("next_postponed", limit - len(found))
        number = _count_within([size for _, size in found], most_bytes)
        return [position for position, _ in found[:number]]

    # ----------------------------------------------------------------------------- for operators

    def state(self) -> OutboxState:
        with self._answering():
            [[waiting, refused]] = self._rows("count", MOST_COUNTED)
            oldest = self._rows("oldest")
            first = self._rows("first_refused", MOST_COUNTED) if refused else []
        return OutboxState(
            waiting=waiting,
            oldest_ms=oldest[0][0] if oldest else 0,
            refused=refused,
            first_refused=RefusedRow(*first[0]) if first else None,
        )

    def check_format(self) -> None:
        """Raise `EngineError` unless the tables are there, in the format of this version."""
        with self._answering():
            version = self._version()
        _check_version(version, self._url)

    def migrate(self) -> int:
        """Make the tables, or bring them to the format of this version; return that format."""
        with self._answering(), self._migrating():
            stored = self._version() or 0
            for version, sql in migrations(self._url):
                if version > stored:
                    self._run_script(sql)
            found = self._version()
        return _check_version(found, self._url)

    def _version(self) -> int | None:
        """The format of the tables; None if there are none."""
        if not self._rows("has_tables")[0][0]:
            return None
        version: int | None = self._rows("version")[0][0]
        return version

    # ------------------------------------------------------------------------- of each database

    @abstractmethod
    def _rows(self, name: str, *values: Any) -> list[Any]:
        """Run a statement, and return its rows."""

    @abstractmethod
    def _run_script(self, sql: str) -> None:
        """Run the statements of a migration."""

    @abstractmethod
    def _answering(self) -> AbstractContextManager[None]:
        """Explain the errors of the driver, and close the connection on any error."""

    @abstractmethod
    def _migrating(self) -> AbstractContextManager[None]:
        """A transaction for one migration at a time."""


def _count_within(sizes: Sequence[int], most_bytes: int) -> int:
    """Count how many rows of these sizes to take: the first one at any size."""
    total = 0
    for number, size in enumerate(sizes):
        total += size
        if total > most_bytes and number:
            return number
    return len(sizes)


def _check_version(found: int | None, url: OutboxUrl) -> int:
    """Return the format of an outbox. Refuse one without tables, or in another format."""
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
    return found


def no_answer(url: OutboxUrl, error: Exception) -> EngineUnavailable:
    return EngineUnavailable(
        f"The outbox in {url.location} did not answer: {_in_one_line(error)}", location=url.location
    )


def refused_call(url: OutboxUrl, error: Exception) -> EngineError:
    return EngineError(
        f"The outbox in {url.location} refused a call: {_in_one_line(error)}", location=url.location
    )


def missing_tables(url: OutboxUrl) -> EngineError:
    return EngineError(
        f"Expected the tables of the outbox in {url.location} ({url.namespace}), found none. Run "
        "`windlass migrate` once, with a role that may create them.",
        location=url.location,
    )


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
