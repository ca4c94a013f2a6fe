"""The figures in the README are those of the stored results, made by `make bench`."""

from __future__ import annotations

from benchmarks.page import BEGIN, END, README, read_results, table


def test_the_readme_shows_the_stored_figures() -> None:
    shown = README.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert shown == table(read_results())
