"""Numbers with their nouns: "1 task", "2 tasks", "1,000 tasks"."""

from __future__ import annotations

from typing import Self


class Count(int):
    """A number that formats with its noun, for log lines: the field stays a number."""

    _words: str

    def __new__(cls, number: int, noun: str, plural: str = "") -> Self:
        made = super().__new__(cls, number)
        made._words = count(number, noun, plural)
        return made

    def __str__(self) -> str:
        return self._words


def count(number: int, noun: str, plural: str = "") -> str:
    """The number with its noun; `plural` is for an irregular one."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
