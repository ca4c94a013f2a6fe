"""Sphinx configuration of `make docs`.

The pages are plain Markdown. This module adds what is specific to the site:

1. the page tree, from `SECTIONS`;
2. the signatures of all public names, after the table in `reference/python.md`;
3. plain text for links to folders and to pages outside of `docs`; other files are copied;
4. `index.html`, which is `README.md` on a code host;
5. the column name of each table cell, which phones show instead of the table head;
6. the description of each page for search engines.

`_static` has the style sheet and the search weights.

Neither the build nor the site fetches anything from other servers.
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
# Typographic dashes would break options such as `--app`.
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
# In docstrings, as in the pages, text between backticks is code.
default_role = "code"

#: The page tree: a heading, and its pages in order; `*` matches all other pages.
SECTIONS: Final = {
    "Start": ["quickstart", "tutorial", "guarantees", "glossary"],
    "Guides": [
        "guides/tasks",
        "guides/failures",
        "guides/dead",
        "guides/timeouts",
        "guides/schedules",
        "guides/unique",
        "guides/once",
        "guides/postgres",
        "guides/transactions",
        "guides/exactly-once",
        "guides/queues",
        "guides/workers",
        "guides/dashboard",
        "guides/alerts",
        "guides/autoscaling",
        "guides/async",
        "guides/testing",
        "guides/settings",
        "guides/groups",
        "guides/headers",
        "guides/tracing",
        "guides/payloads",
        "guides/other-languages",
        "guides/deployment",
        "guides/*",
        "recipes",
    ],
    "Operations": [
        "operations",
        "benchmarks/README",
        "benchmarks/postgres",
        "benchmarks/scale",
        "versions",
    ],
    "Reference": ["reference/python", "reference/*"],
    "Inside": [
        "internals/life-of-a-job",
        "internals/sqlite",
        "internals/*",
        "decisions/README",
    ],
}
DOCS: Final = Path(__file__).parent
PYTHON: Final = "reference/python"
#: The public modules; their `__all__` lists the public names.
MODULES: Final = ("windlass", "windlass.testing")
DECISIONS: Final = "decisions/README"

_LINK: Final = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>\.\.?/[^)#\s]*)(?:#[^)\s]*)?\)")


def setup(app: Sphinx) -> None:
    app.connect("source-read", complete)
    app.connect("html-page-context", describe)
    app.connect("build-finished", copy_indexes)
    app.set_translator("html", Writer)
    # A diagram renderer would have to be fetched; diagrams are readable as text.
    app.add_lexer("mermaid", TextLexer)


def complete(app: Sphinx, name: str, source: list[str]) -> None:
    """Add the site-specific parts to a page."""
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
    """The HTML writer of Sphinx; it also adds the column name to each table cell."""

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
    """Use the first paragraph of a page as its description."""
    beginning = page.next_node(nodes.paragraph) if page else None
    if beginning:
        text = escape(shorten(beginning.astext(), 160, placeholder=" ..."))
        context["metatags"] += f'\n<meta name="description" content="{text}" />'


def copy_indexes(app: Sphinx, error: Exception | None) -> None:
    """Copy the start pages to `index.html`, which browsers open for a folder."""
    if error is None and app.builder.name == "html":
        for name in (root_doc, DECISIONS):
            page = Path(app.outdir) / f"{name}.html"
            shutil.copy(page, page.with_name("index.html"))
