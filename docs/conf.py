"""How `make docs` makes a site of these pages, with Sphinx.

The pages are plain Markdown, to be read as they are; what only a site has is put in here:

1. the tree of pages beside each one, from `SECTIONS`;
2. the signatures of all public names, behind the table in `reference/python.md`;
3. links to folders and to pages that are not among these, as text; other files come along;
4. `index.html`, which on a code host is `README.md`;
5. the column of each cell of a table, which phones show instead of the head of the table;
6. what a page is about, for those who list it elsewhere.

How it looks, and what a search finds first, is in `_static`.

Nothing is fetched, neither while it is built nor by the site itself.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
from html import escape
from importlib.metadata import version as installed_version
from pathlib import Path
from textwrap import shorten
from typing import Any, Final

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

project = "windlass"
author = "The windlass authors"
project_copyright = author
release = version = installed_version("windlass-queue")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "README"
source_suffix = {".md": "markdown"}
exclude_patterns = ["_*"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
# Messages and options are shown as they are written: with a dash for its hyphens `--app` is none.
smartquotes = False

html_theme = "furo"
html_title = f"windlass {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_favicon = "_static/icon.svg"
html_search_scorer = str(Path(__file__).parent / "_static" / "search.js")
html_copy_source = False
html_use_index = False
html_show_sphinx = False

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
# In docstrings, as in the pages, what stands between backticks is code.
default_role = "code"

#: The tree: a heading, and its pages in order; `*` stands for those that are not named.
SECTIONS: Final = {
    "Start": ["quickstart", "tutorial", "guarantees", "glossary"],
    "Guides": [
        "guides/tasks",
        "guides/failures",
        "guides/dead",
        "guides/timeouts",
        "guides/schedules",
        "guides/unique",
        "guides/queues",
        "guides/workers",
        "guides/async",
        "guides/testing",
        "guides/settings",
        "guides/groups",
        "guides/headers",
        "guides/payloads",
        "guides/deployment",
        "guides/*",
        "recipes",
    ],
    "Operations": ["operations", "versions"],
    "Reference": ["reference/python", "reference/*"],
    "Inside": ["internals/life-of-a-job", "internals/sqlite", "internals/*", "decisions/README"],
}
DOCS: Final = Path(__file__).parent
PYTHON: Final = "reference/python"
#: What is public, by their `__all__`.
MODULES: Final = ("windlass", "windlass.testing")
DECISIONS: Final = "decisions/README"

_LINK: Final = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>\.\.?/[^)#\s]*)(?:#[^)\s]*)?\)")


def setup(app: Sphinx) -> None:
    app.connect("source-read", complete)
    app.connect("html-page-context", describe)
    app.connect("build-finished", copy_indexes)
    app.set_translator("html", Writer)
    # Diagrams would need a program from elsewhere; they read well enough as text.
    app.add_lexer("mermaid", TextLexer)


def complete(app: Sphinx, name: str, source: list[str]) -> None:
    """Give a page what only the site has."""
    folder = Path(app.env.doc2path(name)).parent
    source[0] = _LINK.sub(lambda link: within(link, folder), source[0])
    if name == root_doc:
        source[0] += "".join(tree(pages, heading) for heading, pages in SECTIONS.items())
    elif name == DECISIONS:
        source[0] += tree(["*"], "")
    elif name == PYTHON:
        source[0] += "\n## Signatures\n" + "".join(signatures())


def within(link: re.Match[str], folder: Path) -> str:
    place = (folder / link["path"]).resolve()
    is_elsewhere = place.suffix == ".md" and not place.is_relative_to(DOCS)
    return link["text"] if place.is_dir() or is_elsewhere else link[0]


def tree(pages: list[str], heading: str) -> str:
    caption = f":caption: {heading}\n" if heading else ""
    return f"\n\n```{{toctree}}\n:hidden:\n:glob:\n{caption}\n" + "\n".join(pages) + "\n```\n"


def signatures() -> list[str]:
    return [
        signature(module, name)
        for module in MODULES
        for name in importlib.import_module(module).__all__
    ]


def signature(module: str, name: str) -> str:
    value = getattr(importlib.import_module(module), name)
    options = ["members", "undoc-members", "show-inheritance"] if inspect.isclass(value) else []
    lines = [f".. {kind_of(value)}:: {module}.{name}", *(f"   :{option}:" for option in options)]
    return "\n".join(["", "```{eval-rst}", *lines, "```", ""])


def kind_of(value: object) -> str:
    if inspect.isclass(value):
        return "autoexception" if issubclass(value, BaseException) else "autoclass"
    return "autofunction" if callable(value) else "autodata"


class Writer(HTML5Translator):
    """Writes pages as Sphinx does, and with each cell of a table the head of its column."""

    def starttag(self, node: nodes.Element, tagname: str, *args: Any, **attributes: Any) -> str:
        if isinstance(node, nodes.entry) and tagname.lower() == "td":
            attributes["data-column"] = column_of(node)
        return str(super().starttag(node, tagname, *args, **attributes))


def column_of(cell: nodes.entry) -> str:
    row = cell.parent
    head = row.parent.parent.next_node(nodes.thead)
    return head[0][row.index(cell)].astext() if head else ""


def describe(
    _app: Sphinx, _name: str, _template: str, context: dict[str, Any], page: nodes.document | None
) -> None:
    """The beginning of a page says what it is about."""
    beginning = page.next_node(nodes.paragraph) if page else None
    if beginning:
        text = escape(shorten(beginning.astext(), 160, placeholder=" ..."))
        context["metatags"] += f'\n<meta name="description" content="{text}" />'


def copy_indexes(app: Sphinx, error: Exception | None) -> None:
    """A folder is opened at `index.html`."""
    if error is None and app.builder.name == "html":
        for name in (root_doc, DECISIONS):
            page = Path(app.outdir) / f"{name}.html"
            shutil.copy(page, page.with_name("index.html"))
