"""Parse the pages of the documentation for the tests: code blocks, tables, links.

The text after the language of a fenced block says what the block is for:

- "python tasks.py": the text of a file with that name;
- "python": a part of the program of the page, which all these blocks form together;
- "console": commands after "$ " and their output;
- "console worker": the same in the terminal of a worker, which keeps running.

Blocks in other languages are only read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PROJECT: Final = Path(__file__).parent.parent.parent
DOCS: Final = PROJECT / "docs"

_FENCE: Final = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
_CODE: Final = re.compile(r"`([^`]+)`")


class Block(NamedTuple):
    """One fenced block."""

    language: str
    label: str  # what follows the language
    text: str


def all_pages() -> list[Path]:
    examples = sorted((PROJECT / "examples").rglob("*.md"))
    start = [PROJECT / "README.md", PROJECT / "CHANGELOG.md"]
    return [*start, *sorted(DOCS.rglob("*.md")), *examples]


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    return [_block(match) for match in _FENCE.finditer(read(page))]


def _block(match: re.Match[str]) -> Block:
    language, _, label = match["info"].partition(" ")
    return Block(language, label, match["text"])


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", read(page))


def program(page: Path) -> str:
    """The page's own program."""
    return "\n\n".join(block.text for block in blocks(page) if block[:2] == ("python", ""))


def table_rows(page: Path) -> Iterator[list[str]]:
    """The cells of every table row, without headings and rulers."""
    lines = prose(page).splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("|") and not _is_ruler(line) and not _is_ruler(following):
            yield [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def _is_ruler(line: str) -> bool:
    return line.startswith("|") and set(line) <= set("|-: ")


def code_in(text: str) -> list[str]:
    """The texts between backticks."""
    return _CODE.findall(text)


def links(page: Path) -> list[str]:
    return [match["target"] for match in _LINK.finditer(prose(page))]


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page."""
    headings = (match["text"].lower() for match in _HEADING.finditer(prose(page)))
    return {re.sub(r"[^a-z0-9 _-]", "", heading).replace(" ", "-") for heading in headings}
