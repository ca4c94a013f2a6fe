"""Links have targets, decisions have their parts, and pages contain no private paths."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import (
    DOCS,
    PROJECT,
    all_pages,
    anchors,
    code_in,
    links,
    prose,
    read,
    table_rows,
)
from tools.draw_architecture import TARGET, draw

PAGES = all_pages()
DECISIONS = sorted((DOCS / "decisions").glob("[0-9]*.md"))


def name_of(page: Path) -> str:
    return str(page.relative_to(PROJECT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(PROJECT), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_linked_to() -> None:
    linked = {
        (page.parent / link.partition("#")[0]).resolve() for page in PAGES for link in links(page)
    }
    starts = {PROJECT / "README.md", DOCS / "README.md"}
    assert {page for page in PAGES if page not in linked} <= starts


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_pictures_in_the_text_and_no_places_of_ours(page: Path) -> None:
    text = read(page)
    assert not re.search("[\U0001f000-\U0001faff\u2600-\u27bf]", text)
    assert not re.search(r"(?<![\w~])/(root|work|tmp)\b", text)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_extras_are_quoted(page: Path) -> None:
    """Some shells interpret brackets as a pattern of file names."""
    assert not re.search(r"pip install\s+[^'\"\s`]*\[", read(page))


def test_no_command_installs_an_unrelated_package() -> None:
    """The package index has another project under the name of our import package."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout
    by_name = r"""install\s+(-\S+\s+)*['"]?windlass(?!-queue)\b"""
    wrong = re.compile(rf"{by_name}|(?<![\w/-])windlass\[\w")
    for name in listed.strip("\0").split("\0"):
        if name == "docs/decisions/0047-distribution-name.md":
            continue  # it explains the problem
        text = (PROJECT / name).read_text(encoding="utf-8", errors="replace")
        assert not wrong.search(text), name


def test_the_picture_is_drawn_from_its_source() -> None:
    assert TARGET.read_text(encoding="utf-8") == draw()


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(page.name[:4]) for page in DECISIONS]
    assert numbers == list(range(1, len(DECISIONS) + 1))
    index = DOCS / "decisions" / "README.md"
    assert [link for link in links(index) if link[0] == "0"] == [page.name for page in DECISIONS]


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_its_parts(page: Path) -> None:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    assert headings[0].startswith(f"{page.name[:4]}: ")
    assert headings[1:] == ["Context", "Decision", "Consequence"]


def test_claims_of_the_readme_point_to_what_shows_them() -> None:
    rows = [row for row in table_rows(PROJECT / "README.md") if len(row) == 2]
    shown = [link for row in rows for link in re.findall(r"\]\(([^)]+)\)", row[1])]
    assert len(shown) >= len(rows) >= 7
    places = ("proofs/", "tests/", "src/windlass/testing/contract/test_")
    assert all(link.startswith(places) for link in shown)


def test_the_tables_are_read() -> None:
    """A reader of tables that finds nothing would let every other test here pass."""
    rows = list(table_rows(DOCS / "guides" / "settings.md"))
    assert code_in(rows[0][0]) == ["url"]
