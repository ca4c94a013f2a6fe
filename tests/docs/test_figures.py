"""The figures in the README are those of the stored results, made by `make bench`."""

from __future__ import annotations

import re

from benchmarks.page import BEGIN, END, README, read_results, table
from tests.docs.pages import all_pages, prose


def test_the_readme_shows_the_stored_figures() -> None:
    shown = README.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert shown == table(read_results())


def test_pages_name_figures_by_their_rows() -> None:
    """Those about memory, which say no number of their own."""
    text = " ".join(prose(page) for page in all_pages() if page != README).replace("\n", " ")
    named = set(re.findall(r'"(stored for [^"]+)"', text))
    assert named == {f.name for f in read_results().figures if f.name.startswith("stored for")}
