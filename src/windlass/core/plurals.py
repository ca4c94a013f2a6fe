"""How many of what, as people say it: "1 task", "2 tasks", "1,000 tasks"."""

from __future__ import annotations

from typing import Self


class Count(int):
    """A number that is shown with its noun; for log lines, whose fields stay numbers."""

    _words: str

    def __new__(cls, number: int, noun: str, plural: str = "") -> Self:
        made = super().__new__(cls, number)
        made._words = count(number, noun, plural)
        return made

    def __str__(self) -> str:
        return self._words


def count(number: int, noun: str, plural: str = "") -> str:
    """`plural` is for a noun that takes more than an "s"."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
