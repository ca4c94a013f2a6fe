"""The site builds without a warning, and loads nothing from other servers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from fnmatch import fnmatch
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import windlass
from tests.docs.pages import DOCS, PROJECT, blocks, read
from windlass import testing

#: Resources that a browser fetches without a click.
FETCHED = re.compile(r"""(?:src=|<link[^>]*href=|@import\s|url\()\s*["']?(?:https?:)?//""")
#: Typographic quotes and dashes.
EMBELLISHED = re.compile("[\u2013\u2014\u2018\u2019\u201c\u201d]")


class Page(HTMLParser):
    """The anchors and link targets of a page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.anchors.add(value or "")
            elif name in ("href", "src"):
                self.targets.add(value or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "--quiet"]
    made = subprocess.run(
        [*command, "-d", f"{folder}/doctrees", str(DOCS), f"{folder}/site"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return folder / "site"


def test_the_pages_are_plain_markdown() -> None:
    """A code host shows a directive as it is written."""
    found = [page.name for page in DOCS.rglob("*.md") for block in blocks(page) if "{" in block[0]]
    assert found == []
    assert not [page.name for page in DOCS.rglob("*.md") if "\n:::" in read(page)]


def test_every_page_has_its_place() -> None:
    """The build of the site fails for a missing page too, but takes longer."""
    conf = ast.parse(read(DOCS / "conf.py"))
    [tree] = [node for node in conf.body if "SECTIONS: Final" in ast.unparse(node)]
    assert isinstance(tree, ast.AnnAssign)
    assert tree.value is not None
    sections: dict[str, list[str]] = ast.literal_eval(tree.value)
    patterns = ["README", "decisions/*", *(page for pages in sections.values() for page in pages)]
    pages = [str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")]
    placeless = [page for page in pages if not any(fnmatch(page, one) for one in patterns)]
    assert placeless == []


@pytest.mark.slow
def test_every_page_is_in_the_tree_of_the_site(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    pages = [page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")]
    assert all((site / page).exists() for page in pages)
    shown = {page for page in pages if page.parts[0] != "decisions" and page.stem != "README"}
    assert [page for page in shown if f'href="{page}"' not in front] == []


@pytest.mark.slow
def test_links_of_the_site_lead_somewhere(site: Path) -> None:
    pages = {file: Page(file) for file in site.rglob("*.html")}
    links = [(file, target) for file, page in pages.items() for target in page.targets]
    assert len(links) > 1000
    lost = [
        (file.name, target)
        for file, target in links
        if not urlsplit(target).scheme and not is_found(file, target, pages)
    ]
    assert lost == []


def is_found(file: Path, target: str, pages: dict[Path, Page]) -> bool:
    path, anchor = unquote(urlsplit(target).path), unquote(urlsplit(target).fragment)
    place = (file.parent / path).resolve() if path else file
    return place.is_file() and (not anchor or anchor in pages[place].anchors)


@pytest.mark.slow
def test_what_is_printed_is_shown_as_it_is_printed(site: Path) -> None:
    pages = texts_of(site)
    assert "--app MODULE:ATTR" in pages["reference/mistakes.html"]
    assert [name for name, text in pages.items() if EMBELLISHED.search(text)] == []


def texts_of(site: Path) -> dict[str, str]:
    files = site.rglob("*.html")
    return {str(file.relative_to(site)): file.read_text(encoding="utf-8") for file in files}


@pytest.mark.slow
def test_pages_and_cells_say_what_they_are_about(site: Path) -> None:
    pages = texts_of(site)
    bare = [name for name, text in pages.items() if '<meta name="description"' not in text]
    assert bare == ["search.html"]
    assert '<td data-column="environment variable">' in pages["guides/settings.html"]


@pytest.mark.slow
def test_every_public_name_has_its_signature(site: Path) -> None:
    text = (site / "reference" / "python.html").read_text(encoding="utf-8")
    names = [
        f"{module.__name__}.{name}" for module in (windlass, testing) for name in module.__all__
    ]
    assert [name for name in names if f'id="{name}"' not in text] == []


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    files = [file for file in site.rglob("*") if file.suffix in (".html", ".css")]
    assert len(files) > 20
    assert [file.name for file in files if FETCHED.search(file.read_text("utf-8"))] == []


@pytest.mark.slow
def test_no_place_of_ours_is_told(site: Path) -> None:
    files = [file for file in site.rglob("*") if file.suffix in (".html", ".js")]
    assert [file.name for file in files if str(PROJECT) in file.read_text("utf-8")] == []
