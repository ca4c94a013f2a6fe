"""Named statements: the text of an engine's SQL, and how to run it.

A folder `sql/` has one file for each group of verbs. A statement begins with its name
(`-- name: insert_job`), then describes its purpose.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from windlass.core.named_statements import split_statements

Row = tuple[Any, ...]


def read_statements(folder: Path) -> dict[str, str]:
    """Read the files of a folder: statement name -> text without comments."""
    found: dict[str, str] = {}
    for file in folder.glob("*.sql"):
        for name, text in split_statements(file.read_text(encoding="utf-8")):
            if name in found:
                raise ValueError(f"two statements have the name {name}")
            found[name] = text
    return found


def list_migrations(folder: Path) -> Iterator[tuple[int, str]]:
    """List every migration as (version, text), oldest first."""
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            yield int(file.name.split("_")[0]), file.read_text(encoding="utf-8")


class Statements(ABC):
    """Runs named statements on one connection, inside one transaction."""

    @abstractmethod
    def rows(self, name: str, *values: Any) -> list[Row]:
        """Run a statement to its end and return its rows."""

    @abstractmethod
    def run(self, name: str, *values: Any) -> None:
        """Run a statement. An engine may send it together with the next one that returns rows."""

    @abstractmethod
    def change(self, name: str, *values: Any) -> int:
        """Run a statement; return the number of rows that it changed."""

    @abstractmethod
    def array(self, values: Sequence[Any]) -> Any:
        """Pack texts, or numbers, into one parameter."""

    @abstractmethod
    def unpack(self, stored: Any) -> tuple[str, ...]:
        """Return the texts of a stored array."""

    def read_key(self, stored: str) -> str:
        """Return the idempotency key that is stored as this text."""
        return stored

    def one(self, name: str, *values: Any) -> Row | None:
        """Return the first row of a statement, or None."""
        found = self.rows(name, *values)
        return found[0] if found else None

    def first(self, name: str, *values: Any) -> Any:
        """Return the first column of the first row of a statement, or None."""
        found = self.rows(name, *values)
        return found[0][0] if found else None
